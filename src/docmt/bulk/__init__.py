"""Bulk jobs: any number of workers translate the documents of a corpus, each document once."""
