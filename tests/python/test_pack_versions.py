"""Packs of other releases: older ones open with defaults, newer ones are refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

import closed_form
import onward
from builders.packs import open_pack, pack, parts_of, put_together
from onward.errors import PackError
from onward.spec import DecoderSpec

OLD = Path(__file__).parents[1] / "fixtures" / "packs" / "table-0.1.0.onward"
AFTER = {1: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 2}
"""The next token after each token of the fixture's model."""


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The folder from which the fixture was made."""
    logits = [[closed_form.IMPOSSIBLE] * 8 for _ in range(8)]
    for token, following in AFTER.items():
        logits[token][following] = 0.0
    return closed_form.write_table(tmp_path / "table", logits)


class TestOlder:
    def test_a_pack_of_0_1_0_opens(self, table: Path) -> None:
        old, model = onward.LLM(OLD), onward.LLM(table)
        assert old.spec == model.spec
        assert old.generate([1]).token_ids == (3, 4, 5, 6, 7, 2)
        assert old.logits([1, 5]).tobytes() == model.logits([1, 5]).tobytes()

    def test_the_fingerprint_of_its_model_is_the_same(self, table: Path, tmp_path: Path) -> None:
        """So sessions saved by 0.1.0 can still be loaded."""
        pack(table, tmp_path / "new.onward", name="table")
        new = parts_of(tmp_path / "new.onward").metadata
        assert new["fingerprint"] == parts_of(OLD).metadata["fingerprint"]
        assert new["spec"] == parts_of(OLD).metadata["spec"]

    def test_an_absent_member_has_its_default(self, tmp_path: Path) -> None:
        parts = parts_of(OLD)
        for name in ("windows", "qk_norm", "tied_head"):
            parts.tell("spec", lambda spec, name=name: spec.pop(name))
        parts.tell("spec", lambda spec: spec["rope"].pop("theta"))
        older = tmp_path / "older.onward"
        older.write_bytes(put_together(parts))
        found = onward.LLM(older)
        assert found.spec == onward.LLM(OLD).spec
        assert found.generate([1]).token_ids == (3, 4, 5, 6, 7, 2)

    def test_a_required_member_is_named(self, tmp_path: Path) -> None:
        parts = parts_of(OLD)
        parts.tell("spec", lambda spec: spec.pop("num_heads"))
        (tmp_path / "x.onward").write_bytes(put_together(parts))
        with pytest.raises(PackError, match=r"x\.onward: spec: has no 'num_heads'"):
            open_pack(tmp_path / "x.onward")


class TestNewer:
    @pytest.mark.parametrize("where", ["", "rope"])
    def test_an_unknown_member_and_both_versions_are_named(
        self, where: str, tmp_path: Path
    ) -> None:
        parts = parts_of(OLD)
        parts.metadata["onward"] = "7.8.9"
        parts.tell("spec", lambda spec: (spec[where] if where else spec).update(spin=2))
        (tmp_path / "x.onward").write_bytes(put_together(parts))
        with pytest.raises(PackError) as raised:
            open_pack(tmp_path / "x.onward")
        place = "spec.rope" if where else "spec"
        assert str(raised.value) == (
            f"x.onward: {place}: 'spin' is not known to this version; the pack was written by "
            f"onward 7.8.9, this is onward {onward.__version__}: open it with a newer onward, or "
            "pack the model anew"
        )


def test_the_fixture_has_every_member_of_0_1_0() -> None:
    """No member may be renamed, because packs and sessions contain the names."""
    names = set(parts_of(OLD).reported("spec"))
    assert names <= {field for field in DecoderSpec.__dataclass_fields__}
