"""Search in transcripts: `text` is what can be found, `pattern` what is searched, `blocks` searches a transcript."""
