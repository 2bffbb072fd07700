"""The HTTP service `docmt serve`: one engine behind the interfaces of docmt, LibreTranslate and DeepL."""
