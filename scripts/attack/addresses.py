"""A2: 10,500 connections of one address, silent (plain and within HTTP/2) or with tunnels that are; and silent ones of
fifty networks."""

from doors import basic
from relay import Relay, ask, ask_in_turn, certificate, origin, silent_origin, small
from silent import AGAIN, Silent

COUNT = 10_500
NETWORKS = 50
REQUESTS = 300
OTHER = "127.0.2.1"
ACCESS = '[access]\nallow_destinations = ["127.0.0.0/8"]\n[management]\nlisten = "off"\n'


def secured(config):
    relay = Relay(config)
    path = relay.path / "ekiden/config.toml"
    path.write_text(path.read_text() + certificate(relay.path))
    return relay


def one_address(protocol, again, first=b""):
    """`again` connections a second are opened in place of those that were ended. Each says `first`."""
    # attackers take this machine's processors from everybody: a relay that is not attacked shows how much of a delay is that
    with secured(ACCESS) as relay, secured(ACCESS) as bystander:
        to, relays = origin(small), [relay.address, bystander.address]
        peace = ask(relay.address, to, OTHER, REQUESTS)
        with Silent(relay.address, ["127.0.1.1"], COUNT, first, protocol, again=again) as attack:
            before = attack.settle(120)
            attacked, beside = ask_in_turn(relays, to, OTHER, REQUESTS)
            after = attack.settle(0)
        ratios = {
            f"p99_to_{name}": round(attacked.get("p99_ms", 0) / other["p99_ms"], 2)
            for name, other in [("peace", peace), ("bystander", beside)]
            if other.get("p99_ms")
        }
        return {"peace": peace, "attacked": attacked, "bystander": beside, **ratios, "attackers": [before, after]}


def fifty_networks():
    config = ACCESS + '[accounts]\nenabled = true\nstate = "DIR/state"\n'
    relay = secured(config)
    users = [f"user{n}" for n in range(5)]
    for user in users:
        relay.run("account", "add", user, "--user", user, "--password-stdin", input="a right password\n")
    with relay:
        to = origin(small)
        fields = {user: f"Proxy-Authorization: {basic(user, 'a right password')}\r\n" for user in users}
        before = [ask(relay.address, to, f"127.0.3.{n}", 3, fields=fields[user]) for n, user in enumerate(users, 1)]
        sources = [f"127.1.{n}.1" for n in range(NETWORKS)]
        with Silent(relay.address, sources, COUNT) as attack:
            stand = attack.settle(60)
            during = [
                ask(relay.address, to, f"127.0.3.{n}", REQUESTS // 5, fields=fields[user])
                for n, user in enumerate(users, 1)
            ]
        return {"before": before, "attacked": during, "attackers": stand}


def run():
    kinds = {"plain": None, "http2": "h2"}
    held = {f"{name}_held": one_address(protocol, 0) for name, protocol in kinds.items()}
    opened_again = {name: one_address(protocol, AGAIN) for name, protocol in kinds.items()}
    at = "{}:{}".format(*silent_origin())
    tunnels = one_address(None, 0, f"CONNECT {at} HTTP/1.1\r\nHost: {at}\r\n\r\n".encode())
    return {**held, **opened_again, "tunnels": tunnels, "fifty_networks": fifty_networks()}


def faults(shown):
    """What is not as the page of results says, in words."""
    for kind, figures in shown.items():
        asked = figures["attacked"] if kind == "fifty_networks" else [figures["attacked"]]
        if any(one["answered"] < one["asked"] for one in asked):
            yield f"{kind}: somebody who did not attack was not served"
