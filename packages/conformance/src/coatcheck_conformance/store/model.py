"""The store against the memory store as the model."""

from __future__ import annotations

from typing import ClassVar

from coatcheck_conformance.rules import Kind, Suite
from coatcheck_conformance.store.spec import StoreSpec
from coatcheck_conformance.store.trial import opening_rule

__all__ = ["Modelled"]


class Modelled(Suite):
    """The store against the memory store as the model."""

    model_examples: ClassVar[int] = 50
    """How many sequences of steps are tried."""
    model_steps: ClassVar[int] = 30
    """How many steps a sequence has at most."""
    model_derandomize: ClassVar[bool] = True
    """Whether the same sequences are tried every time, those of `seed`; False tries new ones."""

    model_shrink: ClassVar[bool] = False
    """Whether a sequence that fails is made short before it is shown, which takes minutes."""

    @opening_rule("STORE-MODEL-1", kind=Kind.STOCHASTIC)
    def test_the_store_does_what_the_model_does(self, store_spec: StoreSpec) -> None:
        """Whatever is done to it in whatever order, the store answers and holds what the memory store does."""
        from coatcheck_conformance.store.machine import compare_with_model  # noqa: PLC0415 - loads Hypothesis

        compare_with_model(
            store_spec,
            examples=self.model_examples,
            steps=self.model_steps,
            derandomize=self.model_derandomize,
            seed=self.seed,
            shrink=self.model_shrink,
        )
