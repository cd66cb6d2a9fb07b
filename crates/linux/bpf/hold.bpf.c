// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Holding an allotted rate in the kernel's TCP (algorithms/satellite E.4). One rate belongs to a group of sockets and
// is divided among those that have something to send, at every ACK; a socket of no group holds its own
// SO_MAX_PACING_RATE, and without one sends an initial window a round trip. Who goes first (`model::scheduler`'s
// interactive lane) may use nearly all of the rate at once, and the others get that much less.
//
// What TCP lets a program set is the pace and the window (srtt and the time-outs it does not), so that is what
// holds the rate: the kernel's own pacing sends, retransmissions too, and counts payload, which is why a share
// is converted from bytes of IP packets.
#include "hold.h"

enum { GROUPS = 64, NO_RATE_WINDOW = 10 };

// the sums of a group: changed by its members, each in its place
struct group {
	u64 members;     // sockets
	u64 weights;     // of those that have more to send
	u64 light;       // what the others send, bytes a second
	u64 delivered;   // this round's
	u64 lost;
	u64 late;
	u64 pressed;
	u64 rtt;
	u64 began;
	u64 ends;
	u64 total;       // delivered since the beginning
	struct held held;
	u64 first;       // sockets that go first and have more than a packet to send
	u64 stood;       // this round's
};

struct alone {
	struct agreement agreement;
	struct group group;
};

// written by the owner of a socket, by its descriptor
struct member {
	u32 group;
	u32 weight;
	u32 first;       // before those that are not: somebody waits for it
};

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, GROUPS);
	TYPE(key, u32);
	TYPE(value, struct agreement);
} agreements SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, GROUPS);
	TYPE(key, u32);
	TYPE(value, struct group);
} groups SEC(".maps");

struct {
	NUMBER(type, MAP_SK_STORAGE);
	NUMBER(map_flags, NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct member);
} members SEC(".maps");

struct {
	NUMBER(type, MAP_SK_STORAGE);
	NUMBER(map_flags, NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct alone);
} singles SEC(".maps");

// in the 104 bytes that a socket has for its congestion control
struct own {
	u64 light;       // counted in its group's sum
	u64 rate;        // what it sent lately
	u64 since;
	u32 group;       // whose sums it is counted in: 0 none, else one more than the group's number
	u32 weight;      // counted in its group's sum
	u32 delivered;   // told to the group so far, packets
	u32 lost;
	u32 mark;        // `delivered` at `since`
	u32 first;       // counted in its group's sum
	u32 low;         // the least round trip since `lows`
	u64 lows;
};

INLINE struct own *own_of(struct tcp_sock *tp) { return (void *)tp->inet_conn.icsk_ca_priv; }

INLINE void claim(struct group *g, struct own *o, u32 weight, u64 light, u32 first)
{
	if (o->weight != weight)
		__sync_fetch_and_add(&g->weights, (u64)weight - o->weight);
	if (o->light != light)
		__sync_fetch_and_add(&g->light, light - o->light);
	if (o->first != first)
		__sync_fetch_and_add(&g->first, (u64)first - o->first);
	o->weight = weight;
	o->light = light;
	o->first = first;
}

INLINE void leave(struct own *o)
{
	u32 nth = o->group - 1;
	struct group *g = o->group ? map_lookup(&groups, &nth) : 0;

	if (g) {
		claim(g, o, 0, 0, 0);
		__sync_fetch_and_add(&g->members, -1ULL);
	}
	o->weight = 0;
	o->light = 0;
	o->first = 0;
	o->group = 0;
}

// the first to see that a round is over judges it
INLINE void judge(const struct agreement *a, struct group *g, u64 now)
{
	u64 ends = g->ends, length;
	struct round r;

	if (now < ends || __sync_val_compare_and_swap(&g->ends, ends, now + SPAN_MOST) != ends)
		return;
	r.now = now;
	r.span = now - g->began;
	r.delivered = __sync_lock_test_and_set(&g->delivered, 0);
	r.lost = __sync_lock_test_and_set(&g->lost, 0);
	r.late = __sync_lock_test_and_set(&g->late, 0);
	r.stood = __sync_lock_test_and_set(&g->stood, 0);
	r.pressed = __sync_lock_test_and_set(&g->pressed, 0);
	r.rtt = __sync_lock_test_and_set(&g->rtt, 0);
	length = most(least(r.rtt, SPAN_MOST), ROUND_LEAST);
	// the first round, or a pause: nothing that was sent all the while
	if (ends && r.span < 4 * length)
		hold_judge(a, &g->held, &r);
	else
		hold_agree(a, &g->held);
	g->began = now;
	g->ends = now + length;
}

// what is told of the last ACK, and what may be sent until the next; `acked`: there was one
INLINE void turn(struct sock *sk, u32 acked)
{
	struct tcp_sock *tp = (void *)sk;
	struct own *o = own_of(tp);
	struct member *m = sk_storage_get(&members, sk, 0, 0);
	u32 mss = tp->mss_cache ? tp->mss_cache : 536;
	u32 packet = mss + tp->tcp_header_len + tp->inet_conn.icsk_af_ops->net_header_len;
	u32 smoothed = tp->srtt_us >> 3, base = tp->rtt_min.s[0].v, nth = 0, weight = 1;
	u64 now = ktime_ns() / 1000, limit = sk->sk_max_pacing_rate, bytes, lost, rate, share, window, weights, light;
	u32 queued, pushes, heavy, busy, first = 0;
	struct agreement *a = 0;
	struct group *g = 0;
	struct alone *alone;
	// Ekiden asks for pacing by a bound that is none
	u32 bounded = limit && limit <= RATE_MOST;

	if (m && m->group < GROUPS && m->weight) {
		nth = m->group;
		a = map_lookup(&agreements, &nth);
		g = map_lookup(&groups, &nth);
	}
	if (a && g && a->rate) {
		weight = m->weight;
		if (o->group != nth + 1) {
			leave(o);
			o->group = nth + 1;
			__sync_fetch_and_add(&g->members, 1);
		}
	} else {
		leave(o);
		alone = sk_storage_get(&singles, sk, 0, CREATE);
		if (!alone || !bounded) {
			// no rate at all: what anybody may send at first (RFC 6928), each round trip
			sk->sk_pacing_rate = ~0UL;
			tp->snd_cwnd = least(NO_RATE_WINDOW, tp->snd_cwnd_clamp);
			return;
		}
		alone->agreement.rate = limit;
		a = &alone->agreement;
		g = &alone->group;
		g->weights = 1;
		g->light = 0;
	}

	bytes = (u64)(tp->delivered - o->delivered) * packet;
	lost = (u64)(tp->lost - o->lost) * packet;
	o->delivered = tp->delivered;
	o->lost = tp->lost;
	queued = (s32)(tp->write_seq - tp->snd_nxt) > 0;
	// more to send than the peer's window is the peer's pace
	pushes = queued && tp->snd_nxt - tp->snd_una + mss <= tp->snd_wnd;
	heavy = pushes || tp->lost_out > tp->retrans_out;
	busy = tp->packets_out || queued;
	if (acked) {
		__sync_fetch_and_add(&g->delivered, bytes);
		__sync_fetch_and_add(&g->total, bytes);
		__sync_fetch_and_add(&g->lost, lost);
		// a peer whose window is full, as of a young connection with losses, is no slow line
		if (pushes)
			__sync_fetch_and_add(&g->pressed, bytes);
		if (base != ~0U && tp->rack.rtt_us > base + hold_queue(a, base))
			__sync_fetch_and_add(&g->late, bytes);
		if (now - o->lows >= smoothed) {
			o->lows = now;
			o->low = tp->rack.rtt_us;
		}
		o->low = least(o->low, tp->rack.rtt_us);
		if (base != ~0U && o->low > base + hold_queue(a, base) / 4)
			__sync_fetch_and_add(&g->stood, bytes);
		if (smoothed > g->rtt)
			g->rtt = smoothed;
		judge(a, g, now);
	}
	if (!acked) {
		o->since = now;
		o->mark = tp->delivered;
	} else if (now - o->since >= most(smoothed, ROUND_LEAST)) {
		o->rate = (u64)(tp->delivered - o->mark) * packet * MILLION / (now - o->since);
		o->since = now;
		o->mark = tp->delivered;
	}

	hold_agree(a, &g->held);
	rate = hold_rate(a, &g->held);
	first = o->group && m && m->first;
	if (first) {
		// what it has to send now is taken from the others' over a round trip, and not more
		u64 waits = (u64)(u32)(tp->write_seq - tp->snd_una) * packet / mss;

		light = waits * MILLION / most(smoothed, 1000);
		claim(g, o, 0, least(light, rate), tp->write_seq - tp->snd_nxt > mss && queued);
	} else if (o->group) {
		claim(g, o, heavy ? weight : 0, busy && !heavy ? least(o->rate, rate) : 0, 0);
	}
	weights = g->weights;
	light = g->light;
	if (o->group && !o->weight) {
		weights += weight;
		light -= least(light, o->light);
	}
	share = hold_share(rate, light, weights, weight);
	if (first)
		share = most(share, hold_first(rate, g->first - o->first));
	if (base == ~0U)
		base = smoothed;
	window = smoothed ? hold_window(a, hold_known(&g->held, share), smoothed, base, packet) : NO_RATE_WINDOW;
	tp->snd_cwnd = least(window, tp->snd_cwnd_clamp);
	share = most(share * mss / packet, 1);
	sk->sk_pacing_rate = o->group && bounded ? least(share, limit) : share;
}

SEC("struct_ops/hold_init") void hold_init(u64 *ctx)
{
	struct sock *sk = (void *)ctx[0];
	struct tcp_sock *tp = (void *)sk;
	struct own *o = own_of(tp);

	// zeros so far, or what the acknowledgement of a SYN made of them: the kernel tells of that before this
	o->since = ktime_ns() / 1000;
	o->delivered = tp->delivered;
	o->lost = tp->lost;
	o->mark = tp->delivered;
	// where fq paces it says so here already
	if (sk->sk_pacing_status == PACING_NONE)
		sk->sk_pacing_status = PACING_NEEDED;
	turn(sk, 0);
}

SEC("struct_ops/hold_release") void hold_release(u64 *ctx)
{
	leave(own_of((void *)ctx[0]));
}

SEC("struct_ops/hold_event") void hold_event(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	struct own *o = own_of(tp);
	u32 nth = o->group - 1;
	struct group *g;

	if ((u32)ctx[1] == TX_START && !tp->inet_conn.icsk_retransmits) {
		turn((void *)tp, 0);
	} else if (((u32)ctx[1] == TX_START || (u32)ctx[1] == TIME_OUT) && o->group) {
		// one that is not heard of keeps nothing from the others, whatever it sends again; an answer claims it anew
		g = map_lookup(&groups, &nth);
		if (g)
			claim(g, o, 0, 0, 0);
	}
}

// 6.10 gave this two arguments more; what they say is in the socket, too
SEC("struct_ops/hold_control") void hold_control(u64 *ctx)
{
	turn((void *)ctx[0], 1);
}

// a loss is no reason to send less
SEC("struct_ops/hold_ssthresh") u32 hold_ssthresh(u64 *ctx)
{
	return ((struct tcp_sock *)ctx[0])->snd_cwnd;
}

SEC("struct_ops/hold_undo") u32 hold_undo(u64 *ctx)
{
	return ((struct tcp_sock *)ctx[0])->snd_cwnd;
}

// one packet at a time where the rate is low: bursts of two at most (E.4: B)
SEC("struct_ops/hold_burst") u32 hold_burst(u64 *ctx)
{
	return 1;
}

// the send buffer in windows: what follows a packet that is lost, and lost again, waits for it two round trips more
SEC("struct_ops/hold_room") u32 hold_room(u64 *ctx)
{
	return 4;
}

SEC(".struct_ops.link") struct tcp_congestion_ops ekiden_hold = {
	.init = (void *)hold_init,
	.release = (void *)hold_release,
	.cwnd_event = (void *)hold_event,
	.cong_control = (void *)hold_control,
	.ssthresh = (void *)hold_ssthresh,
	.undo_cwnd = (void *)hold_undo,
	.min_tso_segs = (void *)hold_burst,
	.sndbuf_expand = (void *)hold_room,
	.flags = NON_RESTRICTED,
	.name = "ekiden_hold",
};

char _license[] SEC("license") = "GPL";
