"""What the backends say that their agents can do, where no contract of an ability looks at it."""

from kasmon.backends import load, names


def test_a_reason_reaches_agents_whose_protocol_has_a_field_for_it() -> None:
    """ACP has none: `tests/backends/acp` sees that a person is told so."""
    assert {"claude", "codex", "scripted"} == {name for name in names() if load(name).abilities.receives_reasons}
