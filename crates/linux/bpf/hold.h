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
	HOLD_ROUNDS = 10,           // E.4
	TEST_ROUNDS = 3,            // what was sent before a reaction has been answered for by then
	LOSS_MARGIN = 50000,        // E.4: beyond the path's own share
	CHANCE = 9,                 // three deviations of a number that is as large as it varies
	NOMINAL_MOST = 200000,      // beyond it a share of losses is never taken for the path's own (E.4, breaker)
	LEAST_RATE = 8000,          // 64 kbit/s, as in `model::rate_hold`
	WINDOW_LEAST = 4,           // packets (E.4)
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
	u32 nominal;     // the path's own losses as far as known
	u32 losses;      // their share when last reacted to
	u32 reactions;
	u32 undone;
};

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
}

// losses of the last five seconds, forgotten a fifth each second
INLINE void hold_count(struct held *h, const struct round *r)
{
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
	h->acked += least(r->delivered, RATE_MOST);
	h->lost += least(r->lost, RATE_MOST);
}

// E.4, at the end of each round
INLINE void hold_judge(const struct agreement *a, struct held *h, const struct round *r)
{
	u64 delivered = least(r->delivered, RATE_MOST), lost = least(r->lost, RATE_MOST);
	u64 sent = delivered + lost, rtt = most(least(r->rtt, SPAN_MOST), ROUND_LEAST);
	u64 arrived = delivered * MILLION / (r->span ? r->span : 1);
	u64 share = sent ? lost * MILLION / sent : 0;
	u64 expected, kept, missed = lost / PACKET, usual;
	u32 queued, lossy;

	hold_agree(a, h);
	hold_count(h, r);
	if (sent < 10 * PACKET)
		goto grow;
	if (h->test && r->now >= h->test) {
		h->test = 0;
		// as many are lost though less is sent, chance allowed for: they are the path's own
		if (share * 2 >= h->losses) {
			h->nominal = most(h->nominal, least(share, NOMINAL_MOST));
			h->current = most(h->current, h->before);
			h->until = 0;
			h->undone++;
		}
	}
	if (r->now < h->until)
		return;
	expected = h->current / 10 * 9 / MILLION * (MILLION - h->nominal) +
		   h->current / 10 * 9 % MILLION * (MILLION - h->nominal) / MILLION;
	queued = r->late * 2 > delivered;
	// more than the path's own and a margin, by three deviations: a few lost by chance are no sign
	usual = sent / PACKET * (h->nominal + LOSS_MARGIN) / MILLION;
	lossy = missed > usual && (missed - usual) * (missed - usual) > CHANCE * usual &&
		r->pressed * 2 > delivered && arrived < expected;
	if (queued || lossy) {
		kept = arrived / 100 * 85;
		h->before = h->current;
		h->current = least(most(kept, hold_floor(a)), h->current);
		h->until = r->now + HOLD_ROUNDS * rtt;
		h->test = queued ? 0 : r->now + TEST_ROUNDS * rtt;
		h->losses = share;
		h->reactions++;
		return;
	}
grow:
	if (r->now >= h->until)
		h->current = least(h->current + h->agreed / 20, h->agreed);
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

// packets that may be under way: the gain, and the path with the tolerated queue
INLINE u64 hold_window(const struct agreement *a, u64 share, u64 smoothed, u64 base, u64 packet)
{
	u64 gain = a->gain ? a->gain : a->dedicated ? 125 : 200;
	u64 span = least(least(smoothed, SPAN_MOST) * gain / 100, least(base, SPAN_MOST) + hold_queue(a, base));

	return most(least(share, RATE_MOST) * least(span, SPAN_MOST) / MILLION / (packet ? packet : PACKET), WINDOW_LEAST);
}

#endif
