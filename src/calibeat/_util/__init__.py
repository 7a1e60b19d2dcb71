"""What every layer needs and no layer is about: checks, columns, times, files, words."""
