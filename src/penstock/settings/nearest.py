"""Which name a user probably meant, said in an UnknownSetting."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from penstock.settings.errors import UnknownSetting

# Names without their section are short: a changed word is already far. Whole names share so much
# that only a typing mistake says anything.
_SAME_KEY = 0.6
_SAME_NAME = 0.8
_SAME_SECTION = 0.5


def unknown_key(name: str, *, source: str | None, valid: Collection[str]) -> UnknownSetting:
    """Refuse a dotted name that is not among the `valid` ones."""
    section = name.partition(".")[0]
    keys = [known.partition(".")[2] for known in valid if known.startswith(f"{section}.")]
    return UnknownSetting(
        f"setting {name!r}",
        key=name,
        source=source,
        nearest=_nearest(name, valid),
        choices=(
            f"The keys of [{section}] are {', '.join(keys)}."
            if keys
            else f"The settings are {', '.join(valid)}."
        ),
    )


def unknown_section(name: str, *, source: str, valid: Collection[str]) -> UnknownSetting:
    guesses = get_close_matches(name.lower(), valid, n=1, cutoff=_SAME_SECTION)
    return UnknownSetting(
        f"section {name!r}",
        key=name,
        source=source,
        nearest=guesses[0] if guesses else None,
        choices=f"The sections are {', '.join(valid)}.",
    )


def unknown_variable(variable: str, *, prefix: str, valid: Mapping[str, str]) -> UnknownSetting:
    """Refuse a variable; `valid` has each variable that exists by its dotted name."""
    # Without the prefix: what all variables share would make all of them look alike.
    guess = _nearest(variable.removeprefix(prefix), valid)
    return UnknownSetting(
        "setting of this name",
        key=variable,
        source=variable,
        nearest=valid[guess] if guess else None,
        choices=f"Unset it, or use one of {', '.join(valid.values())}.",
    )


def linked_variable(variable: str, *, is_setting: bool) -> UnknownSetting:
    """Refuse a variable that Kubernetes has set for a Service of our name."""
    return UnknownSetting(
        "port in it, but an address" if is_setting else "setting of this name",
        key=variable,
        source=variable,
        nearest=None,
        choices="Kubernetes sets it for a Service whose name begins with penstock: write "
        "`enableServiceLinks: false` in the pod's spec, or give the Service another name.",
    )


def _nearest(name: str, valid: Collection[str]) -> str | None:
    """Find the dotted name behind `name`, whose parts may be joined by anything."""
    wanted = name.lower().replace(".", "_")
    whole = {known.replace(".", "_"): known for known in valid}
    keys = {known.rpartition(".")[2]: known for known in valid}
    sections = {known.partition(".")[0] for known in valid if "." in known}
    key = next(
        (wanted.removeprefix(f"{s}_") for s in sections if wanted.startswith(f"{s}_")), wanted
    )
    # The key first: the right one in the wrong section is the likeliest mistake of all.
    if same_key := get_close_matches(key, keys, n=1, cutoff=_SAME_KEY):
        return keys[same_key[0]]
    if same_end := [known for end, known in keys.items() if key.endswith(f"_{end}")]:
        return same_end[0]
    same_name = get_close_matches(wanted, whole, n=1, cutoff=_SAME_NAME)
    return whole[same_name[0]] if same_name else None
