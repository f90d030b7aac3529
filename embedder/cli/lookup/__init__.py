"""What verbs that look keys up share: batches, expressions, the prompt."""
