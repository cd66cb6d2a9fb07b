"""A6: right log-ins beside 80 connections that guess, and a hundred of one device at once."""

import threading
import time

from addresses import ACCESS
from doors import basic
from relay import Relay, origin, request, small
from verdicts import answered, most

GUESSERS = 80
FIRST = 20
CROWD = 100
# seconds for each first log-in
WITHIN = 2


def fields(user, password):
    return f"Proxy-Authorization: {basic(user, password)}\r\n"


def at_once(count, one):
    rows = [None] * count

    def act(nth):
        rows[nth] = one(nth)

    threads = [threading.Thread(target=act, args=(nth,)) for nth in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def shown(rows):
    return {
        "asked": len(rows),
        "answered": sum(status == 200 for status, _ in rows),
        "slowest_s": round(max(took for _, took in rows), 2),
    }


def verdicts(shown):
    first, one_device = shown["first_log_ins"], shown["one_device_at_once"]
    yield answered(f"first log-ins beside {GUESSERS} that guess", {"first": first})
    yield most("the slowest of them", {"first": first["slowest_s"]}, WITHIN, "s", time=True)
    yield answered("connections of one device at once", {"one device": one_device})


def run():
    relay = Relay(ACCESS + '[accounts]\nenabled = true\nstate = "DIR/state"\n')
    for nth in range(FIRST + 1):
        arguments = ["account", "add", f"user{nth}", "--user", f"user{nth}", "--password-stdin"]
        relay.run(*arguments, input="a right password\n")
    with relay:
        to, stop, guessed = origin(small), threading.Event(), []

        def guess(nth):
            count = 0
            while not stop.is_set():
                wrong = fields(f"user{nth % FIRST}", f"wrong {nth} {count}")
                guessed.append(request(relay.address, to, f"127.0.4.{nth % 4 + 1}", wrong)[0])
                count += 1

        for nth in range(GUESSERS):
            threading.Thread(target=guess, args=(nth,), daemon=True).start()
        time.sleep(2)
        right = []
        for nth in range(FIRST):
            log_in = fields(f"user{nth}", "a right password")
            right.append(request(relay.address, to, f"127.0.5.{nth + 1}", log_in))
            time.sleep(0.2)
        one = fields(f"user{FIRST}", "a right password")
        crowd = at_once(CROWD, lambda _: request(relay.address, to, "127.0.6.1", one))
        stop.set()
        return {"first_log_ins": shown(right), "one_device_at_once": shown(crowd), "guesses": len(guessed)}
