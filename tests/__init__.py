"""Tests: a folder a room of the program; reference/ has the definitions they compare with."""
