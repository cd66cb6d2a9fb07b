"""A2: 10,500 connections of one address, silent (plain and within HTTP/2) or with tunnels that are; and silent ones of
fifty networks."""

from doors import basic
from relay import Relay, ask, ask_in_turn, certificate, origin, silent_origin, small
from silent import AGAIN, Silent
from verdicts import answered, most, ratio

COUNT = 10_500
NETWORKS = 50
REQUESTS = 300
# how many times its time without the attack the slowest request but one in a hundred may take
TIMES = 2
# parts in which nobody opens connections again; of the others it is said
REQUIRED = ["plain_held", "http2_held"]
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
    with secured(ACCESS) as relay, secured(ACCESS) as second:
        to, relays = origin(small), [relay.address, second.address]
        without = ask(relay.address, to, OTHER, REQUESTS)
        with Silent(relay.address, ["127.0.1.1"], COUNT, first, protocol, again=again) as attack:
            before = attack.settle(120)
            attacked, beside = ask_in_turn(relays, to, OTHER, REQUESTS)
            after = attack.settle(0)
        return {
            "without": without,
            "attacked": attacked,
            "second_relay": beside,
            "p99_to_without": ratio(attacked, without, "p99_ms"),
            "p99_to_second_relay": ratio(attacked, beside, "p99_ms"),
            "attackers": [before, after],
        }


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


def verdicts(shown):
    accounts = shown["fifty_networks"]["attacked"]
    one_address = {kind: of for kind, of in shown.items() if kind != "fifty_networks"}
    yield answered("another address", {kind: of["attacked"] for kind, of in one_address.items()})
    yield answered("accounts beside fifty networks", {f"user{nth}": one for nth, one in enumerate(accounts)})
    for kind, of in one_address.items():
        times = {"attacked": of["p99_to_without"]}
        required = kind in REQUIRED
        yield most(f"p99, {kind}", times, TIMES, "× its time without the attack", time=True, required=required)
