// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// What a rate is held by, in integers: `ekiden_model::rate_hold::rounds`, line by line. Bytes are those of
// IP packets, rates bytes a second, times microseconds, shares parts of a million. Nothing here is a kernel
// type, so that trial.bpf.c can run it on recorded rounds.
#ifndef EKIDEN_HOLD_H
#define EKIDEN_HOLD_H

#include "types.h"

enum {
	MILLION = 1000000,
	PACKET = 1500,
	ROUND_LEAST = 100000,       // E.4: a round trip, and at least this
	HOLD_ROUNDS = 10,           // E.4, after losses
	CALM_ROUNDS = 6,            // after a queue, and between attempts to find the line faster
	DRAIN_ROUNDS = 2,           // of sending less than the line takes, where what waited was too much
	TEST_ROUNDS = 4,            // what was sent before a reaction has been answered for long before
	LOSS_MARGIN = 50000,        // E.4: beyond the path's own share
	CHANCE = 36,                // three deviations where losses come in bursts of four, six of a number that
	                            // is as large as it varies
	NOMINAL_MOST = 200000,      // beyond it a share of losses is never taken for the path's own (E.4, breaker)
	LEAST_RATE = 8000,          // 64 kbit/s, as in `model::rate_hold`
	WINDOW_LEAST = 4,           // packets (E.4)
	CALM_MARGIN = 10000,        // beyond losses when it was calm
	ARRIVES = 97,               // per cent; less: the line is no faster
	STEPS = 8,                  // growth by a 64th at first, doubled every second round
	ENOUGH = 50,                // packets that say something of losses (E.4: n_min)
	FORGET = 1000000,           // E.4: slots of a second, five of them
	SLOTS = 5,
};
#define RATE_MOST (1ULL << 40)
#define SPAN_MOST (8ULL * MILLION)

// what the operator agreed to
struct agreement {
	u64 rate;        // 0: none
	u64 line;        // beyond `rate`: losses are made up for up to this; 0: never
	u32 queue;       // tolerated delay; 0: a quarter of the least round trip, 50 to 250 ms
	u32 gain;        // window over rate × round trip, in hundredths; 0: 200, or 125 where dedicated
	u32 nominal;     // the path's own losses; 0: 2 %
	u32 dedicated;   // the line is the operator's own: no floor at a tenth
	u64 owner;       // process that wrote it; nothing to the kernel
};

// what became of what was sent, over a round
struct round {
	u64 now;
	u64 span;
	u64 delivered;
	u64 lost;
	u64 late;        // of `delivered`, what waited longer than is tolerated
	u64 stood;       // of `delivered`, what came of senders all of whose packets waited longer than a quarter of that
	u64 pressed;     // of `delivered`, what came of senders that had more to send
	u64 rtt;         // the longest of the members'
};

// what is kept between rounds
struct held {
	u64 agreed;      // the rate that `current` was derived from
	u64 current;
	u64 before;      // what it was before the last reaction
	u64 until;       // no more before then
	u64 test;        // when a reaction to losses is judged; 0: none is
	u64 acked;       // of the last seconds, as are
	u64 lost;
	u64 slot;
	u64 line;        // what the line takes, as seen by what arrived; 0: nothing says that it is less than agreed
	u64 last;        // `current` in the round before
	u64 drained;     // until when a queue is let drain
	u32 nominal;     // the path's own losses as far as known
	u32 losses;      // their share when last reacted to
	u32 reactions;
	u32 undone;
	u32 calm;        // losses when what was sent was less than the line takes
	u32 step;        // rounds of growth
};

// verified alone, so that its paths do not multiply the caller's; never given a null pointer
#define APART __attribute__((noinline)) int

INLINE u64 least(u64 a, u64 b) { return a < b ? a : b; }
INLINE u64 most(u64 a, u64 b) { return a > b ? a : b; }

INLINE u64 hold_floor(const struct agreement *a)
{
	return most(a->dedicated ? LEAST_RATE : a->rate / 10, least(LEAST_RATE, a->rate));
}

// what may wait in the queue, given the least round trip
INLINE u64 hold_queue(const struct agreement *a, u64 base)
{
	if (a->queue)
		return least(a->queue, SPAN_MOST);
	return least(most(base / 4, 50000), 250000);
}

// another agreement begins at its own rate; what is known of the path's losses stays
INLINE void hold_agree(const struct agreement *a, struct held *h)
{
	u64 rate = least(a->rate, RATE_MOST);
	u32 nominal = a->nominal ? a->nominal : 20000;

	if (h->nominal < nominal)
		h->nominal = nominal;
	if (h->agreed == rate)
		return;
	h->agreed = rate;
	h->current = rate;
	h->until = 0;
	h->test = 0;
	h->line = 0;
	h->last = 0;
	h->drained = 0;
	h->step = 0;
}

// losses of the last five seconds, forgotten a fifth each second; none before `slot`
APART hold_count(struct held *h, const struct round *r)
{
	if (!h || !r || r->now < h->slot)
		return 0;
	u64 slots = r->now > h->slot ? (r->now - h->slot) / FORGET : 0;

	if (slots >= SLOTS) {
		h->acked = 0;
		h->lost = 0;
		h->slot = r->now;
	} else if (slots) {
		h->acked -= h->acked / SLOTS * slots;
		h->lost -= h->lost / SLOTS * slots;
		h->slot += slots * FORGET;
	}
	h->acked = least(h->acked + least(r->delivered, RATE_MOST), RATE_MOST);
	h->lost = least(h->lost + least(r->lost, RATE_MOST), RATE_MOST);
	return 0;
}

// whether packets were lost of late beyond a share and chance, six deviations
APART hold_beyond(const struct held *h, u64 share)
{
	if (!h)
		return 0;
	u64 counted = h->acked + h->lost, usual = counted / PACKET * share / MILLION, missed = h->lost / PACKET;
	u64 beyond = missed > usual ? missed - usual : 0;

	return counted >= ENOUGH * PACKET && beyond * beyond > CHANCE * usual;
}

// more than before, gently at first; half as much again as ever arrived at most
APART hold_grow(struct held *h)
{
	if (!h)
		return 0;
	if (!h->line) {
		h->current = h->agreed;
		h->step = 0;
		return 0;
	}
	u64 more = (h->current << (least(h->step, STEPS) / 2)) / 64;
	u64 bound = least(most(h->line + h->line / 2, h->current), h->agreed);

	h->current = least(h->current + more, bound);
	h->step = least(h->step + 1, STEPS);
	return 0;
}

// a little less than the line takes, and less than that while a queue is to drain; a test goes on as it began
APART hold_keep(struct held *h, u64 now, u64 taken, u64 floor)
{
	if (!h || h->test || !h->line)
		return 0;
	h->line = most(h->line, taken);
	h->current = least(most(h->line / 100 * (now < h->drained ? 90 : 98), floor), h->agreed);
	return 0;
}

// no queue, no losses to speak of: is the line faster?
APART hold_seek(struct held *h, const struct round *r, u64 rtt, u64 taken, u64 paced)
{
	u64 counted, left, faster, arrives;

	if (!h || !r || !h->line)
		return 0;
	counted = h->acked + h->lost;
	if (!h->step)
		h->calm = least(counted ? h->lost * MILLION / counted : 0, NOMINAL_MOST);
	// our own window may keep back what the pace would send: more than ever came is enough
	faster = taken > h->line / 64 * 65;
	h->line = most(h->line, taken);
	left = (least(r->delivered, RATE_MOST) + least(r->lost, RATE_MOST)) * MILLION / (r->span ? r->span : 1);
	arrives = left >= paced / 100 * ARRIVES && h->line >= paced / 16 * 15;
	if (faster || (arrives && !hold_beyond(h, most(h->calm, h->nominal) + LOSS_MARGIN))) {
		if (paced >= h->agreed)
			h->line = 0;
		hold_grow(h);
	} else if (h->step && r->pressed * 4 > r->delivered) {
		// what was sent in addition waits, or is lost
		h->step = 0;
		h->until = r->now + CALM_ROUNDS * rtt;
		h->current = least(h->line / 100 * 98, h->current);
	}
	return 0;
}

// E.4, at the end of each round
APART hold_judge(const struct agreement *a, struct held *h, const struct round *r)
{
	u64 delivered, lost, sent, rtt, span, arrived, expected, counted, share, own, taken, paced, floor;
	u32 busy, late, stood, lossy;

	if (!a || !h || !r)
		return 0;
	delivered = least(r->delivered, RATE_MOST);
	lost = least(r->lost, RATE_MOST);
	sent = delivered + lost;
	rtt = most(least(r->rtt, SPAN_MOST), ROUND_LEAST);
	span = r->span ? r->span : 1;
	arrived = delivered * MILLION / span;
	hold_agree(a, h);
	hold_count(h, r);
	floor = least(hold_floor(a), h->agreed);
	// what arrives now was sent a round trip ago
	paced = h->last;
	h->last = h->current;
	// a burst is no share: losses are judged over seconds, and of enough packets (E.4)
	counted = h->acked + h->lost;
	share = counted ? h->lost * MILLION / counted : 0;
	if (sent < 10 * PACKET) {
		// nobody sends, or the rate is too low for a round to say anything
		if (paced < 20ULL * PACKET * MILLION / rtt && r->now >= h->until) {
			if (h->line)
				h->line = most(h->line, h->current);
			hold_grow(h);
		}
		return 0;
	}
	if (h->test && r->now >= h->test && counted >= ENOUGH * PACKET) {
		h->test = 0;
		// as many are lost though less is sent, chance allowed for: they are the path's own
		if (share * 2 >= h->losses) {
			h->nominal = most(h->nominal, least(share, NOMINAL_MOST));
			h->current = most(h->current, h->before);
			h->line = h->before < h->agreed ? most(h->line, h->before) : 0;
			h->until = 0;
			h->undone++;
		}
		h->calm = least(share, NOMINAL_MOST);
	}
	// what the line took: with what the path loses behind it
	own = delivered / 1000 * (h->calm + CALM_MARGIN) / 1000;
	taken = least((delivered + least(lost, own)) * MILLION / span, h->agreed);
	busy = r->pressed * 4 > delivered;
	late = r->late * 2 > delivered && busy;
	stood = r->stood * 2 > delivered && busy && h->line;
	if (r->now < h->until && !(late && h->line && taken < h->line / 4 * 3)) {
		hold_keep(h, r->now, taken, floor);
		return 0;
	}
	expected = h->current / 10 * 9 / MILLION * (MILLION - h->nominal) +
		   h->current / 10 * 9 % MILLION * (MILLION - h->nominal) / MILLION;
	lossy = hold_beyond(h, h->nominal + LOSS_MARGIN) && r->pressed * 2 > delivered && arrived < expected;
	if (!late && !stood && !lossy) {
		hold_seek(h, r, rtt, taken, paced);
		return 0;
	}
	h->before = h->current;
	h->losses = share;
	h->reactions++;
	h->step = 0;
	if (late || stood) {
		// a queue that stands though what is sent arrives is an old one, or others', or a longer path
		if (!h->line || taken < paced / 100 * 99)
			h->line = most(taken, floor);
		h->drained = r->now + (late ? DRAIN_ROUNDS : 1) * rtt;
		h->until = r->now + CALM_ROUNDS * rtt;
		h->test = 0;
		hold_keep(h, r->now, 0, floor);
	} else {
		h->line = most(arrived / 100 * 85, floor);
		h->current = least(h->line, h->current);
		h->until = r->now + HOLD_ROUNDS * rtt;
		h->test = r->now + TEST_ROUNDS * rtt;
		// it is less than the line takes, if that is full at all
		h->step = STEPS - 2;
	}
	// what was sent before says nothing of what is sent from now on
	h->acked = 0;
	h->lost = 0;
	h->slot = r->now + rtt * 3 / 2;
	return 0;
}

// of one member's part what may be under way: not what the line is not known to take
INLINE u64 hold_known(const struct held *h, u64 share)
{
	if (!h->line || h->line >= h->current)
		return share;
	return least(share, RATE_MOST) / 1000 * (h->line * 1000 / h->current);
}

// what all members together may send: with what makes up for losses, where the line has it
INLINE u64 hold_rate(const struct agreement *a, const struct held *h)
{
	u64 rate = least(h->agreed ? h->current : a->rate, RATE_MOST), sent = h->acked + h->lost;

	if (a->line <= a->rate || sent < ENOUGH * PACKET)
		return rate;
	// 0.8 at least: 1.25 times the rate at most
	u64 arrives = most(h->acked * 1000 / sent, 800);
	return least(rate * 1000 / arrives, a->line);
}

// one member's part: what those with little to send leave, by weights
INLINE u64 hold_share(u64 rate, u64 light, u64 weights, u64 weight)
{
	u64 left = rate > light ? rate - light : 0;

	left = most(left, rate / 16);
	if (weights <= weight)
		return left;
	return left / weights * weight + left % weights * weight / weights;
}

// the part of one that goes first, beside so many others that do and have something to send, too
INLINE u64 hold_first(u64 rate, u64 others)
{
	return (rate - rate / 16) / (least(others, MILLION) + 1);
}

// packets that may be under way: the gain, and the path with the tolerated queue
INLINE u64 hold_window(const struct agreement *a, u64 share, u64 smoothed, u64 base, u64 packet)
{
	u64 gain = a->gain ? a->gain : a->dedicated ? 125 : 200;
	u64 span = least(least(smoothed, SPAN_MOST) * gain / 100, least(base, SPAN_MOST) + hold_queue(a, base));

	// a packet's part is a packet: sixty with four and a bit each are not to have four
	packet = packet ? packet : PACKET;
	return most((least(share, RATE_MOST) * least(span, SPAN_MOST) / MILLION + packet - 1) / packet, WINDOW_LEAST);
}

#endif
