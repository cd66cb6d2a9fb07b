"""What was wanted of a figure, what was seen, and whether it held, in plain words and for programs."""

import dataclasses


class NotRun(Exception):
    """Why a part cannot run here: it needs something that this machine or this user does not have."""


@dataclasses.dataclass
class Verdict:
    what: str
    wanted: str
    seen: str
    held: bool
    # other work stretches a time, so it fails a run with --strict alone
    time: bool = False
    # else it is said, and fails no run
    required: bool = True

    def fails(self, strict):
        return not self.held and self.required and (strict or not self.time)

    def line(self, part):
        notes = ["a time"] * self.time + ["not required"] * (not self.required)
        held = ("held" if self.held else "did not hold") + (f" ({', '.join(notes)})" if notes else "")
        return f"{part}: {self.what}: wanted {self.wanted}; seen {self.seen}: {held}"


def ratio(one, other, key):
    """How many times the other's delay this one's is. Nothing where either has none."""
    return round(one[key] / other[key], 2) if one.get(key) and other.get(key) else None


def answered(what, asked):
    """`asked` by name: what `ask` shows."""
    whole = sum(one["asked"] for one in asked.values())
    some = sum(one["answered"] for one in asked.values())
    less = [f"{name} {one['answered']} of {one['asked']}" for name, one in asked.items() if one["answered"] < one["asked"]]
    seen = f"{some} of {whole}" + (f" ({', '.join(less)})" if less and len(asked) > 1 else "")
    return Verdict(what, "all answered", seen, not less and whole > 0)


def most(what, values, limit, unit, **kind):
    """The largest of `values`, which have names. What could not be measured does not hold."""
    missing = [name for name, value in values.items() if value is None]
    if missing or not values:
        return Verdict(what, f"at most {limit} {unit}", f"nothing ({', '.join(missing)})", False, **kind)
    name = max(values, key=values.get)
    seen = f"{values[name]} {unit}" + (f" ({name})" if len(values) > 1 else "")
    return Verdict(what, f"at most {limit} {unit}", seen, values[name] <= limit, **kind)


def lives(shown):
    """`shown` by name: figures with `lives`."""
    ended = [name for name, figures in shown.items() if not figures["lives"]]
    return Verdict("the relay", "that it runs after each", f"ended ({', '.join(ended)})" if ended else "it runs", not ended)
