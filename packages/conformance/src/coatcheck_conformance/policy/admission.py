"""The suite of admission policies: all topics in one class."""

from __future__ import annotations

import pytest

from coatcheck_conformance.policy.admitting import Admitting
from coatcheck_conformance.policy.answering import Answering, Crediting
from coatcheck_conformance.policy.naming import Naming
from coatcheck_conformance.policy.observing import Observing
from coatcheck_conformance.policy.spec import AdmissionSpec
from coatcheck_conformance.policy.watching import staying_inside
from coatcheck_conformance.rules import spec_rule

__all__ = ["AdmissionConformance"]


class AdmissionConformance(Naming, Crediting, Admitting, Observing, Answering):
    """Every promise of the admission policies' contract. Subclass it, and give the fixture `admission_spec`."""

    fixture = "admission_spec"

    @pytest.fixture
    def admission_spec(self) -> AdmissionSpec:
        """Return how to make the admission policy under test."""
        pytest.fail(f"{type(self).__name__} needs a fixture `admission_spec` that returns an AdmissionSpec")

    @spec_rule("admission_spec", "ADMISSION-MAKE-1")
    def test_making_one_does_nothing_outside(self, spec: AdmissionSpec) -> None:
        """An app can stand at module level: making a policy does no I/O."""
        spec.create()  # what it imports may be read
        with staying_inside("making the policy"):
            spec.create()
