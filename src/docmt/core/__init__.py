"""What every room stands on: errors, options, files, progress, messages. Nothing here knows of translation."""
