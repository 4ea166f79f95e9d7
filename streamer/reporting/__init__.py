"""Reports for people: from files of rows or a journal to one HTML page and a MultiQC file."""
