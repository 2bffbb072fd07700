"""Parallel documents from a grammar, in which translation depends on earlier sentences."""
