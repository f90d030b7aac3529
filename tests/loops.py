"""Weighted updates by plain loops: (7), (8), (41), (18) and (42) with (56) and (67)."""

import numpy as np


class Loops:
    """A model that is trained pair by pair.

    It has the tables of input and output rows, the `sums` that Adagrad keeps of each
    row, and of all updates the loss and the weight of its positive terms.
    """

    def __init__(self, tables, architecture: str, optimizer: str, cap, negative: int):
        self.tables = [np.array(table) for table in tables]
        self.sums = [np.zeros(len(table)) for table in tables]
        self.architecture, self.optimizer = architecture, optimizer
        self.cap, self.negative = cap, negative
        self.loss = self.terms = 0.0

    def update(self, tokens, rate: float) -> None:
        """Applies the terms of tokens: (id, ids of the contexts, noise ids, m w)."""
        self.gradients = [np.zeros_like(table) for table in self.tables]
        self.weights = [np.zeros(len(table)) for table in self.tables]
        for token, contexts, noise, weight in tokens:
            getattr(self, f"_{self.architecture}")(token, contexts, noise, weight)
        for table, sums, gradient, weight in zip(
            self.tables, self.sums, self.gradients, self.weights, strict=True
        ):
            scale = np.minimum(1, self.cap / np.maximum(weight, 1e-300))
            if self.optimizer == "adagrad":
                sums += (gradient**2).mean(axis=1)
                scale = 1 / (np.sqrt(sums) + 1e-8)
            table -= rate * scale[:, np.newaxis] * gradient

    def _skipgram(self, token, contexts, noise, weight) -> None:
        vector, share = self.tables[0][token], self.negative / len(noise)
        for context in contexts:
            self.gradients[0][token] += self._term(vector, context, -1, weight)
            for k in noise:
                gradient = self._term(vector, k, 1, weight * share)
                self.gradients[0][token] += gradient
            self.weights[0][token] += weight
            self.terms += weight

    def _cbow(self, token, contexts, noise, weight) -> None:
        mean, share = self.tables[0][contexts].mean(axis=0), self.negative / len(noise)
        gradient = self._term(mean, token, -1, weight)
        for k in noise:
            gradient = gradient + self._term(mean, k, 1, weight * share)
        for context in contexts:
            self.gradients[0][context] += gradient / len(contexts)
            self.weights[0][context] += weight / len(contexts)
        self.terms += weight

    def _term(self, hidden, row: int, sign: int, count: float) -> np.ndarray:
        """count softplus(sign hidden . u_row); returns its derivative by `hidden`."""
        score = hidden @ self.tables[1][row]
        error = count * sign / (1 + np.exp(-sign * score))
        self.loss += count * np.logaddexp(0, sign * score)
        self.gradients[1][row] += error * hidden
        self.weights[1][row] += count
        return error * self.tables[1][row]
