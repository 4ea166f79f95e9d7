"""Reports for people: files of rows or a journal in, one HTML page and MultiQC's file out."""
