"""Tests: a folder for each package; reference/ has the definitions that they compare with."""
