"""Tables: vectors of tokens, by skip-gram and CBOW with negative sampling."""
