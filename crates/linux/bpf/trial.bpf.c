// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// The arithmetic of the other programs alone, run by tests on rounds and ACKs they choose, in the kernel that
// would run it on a socket's.
#include "hold.h"
#include "westwood.h"

// what goes in and comes out again
struct judged {
	struct agreement agreement;
	struct held held;
	struct round round;
	u64 rate;        // out
	u64 light;       // of the group's other members
	u64 weights;
	u64 weight;
	u64 share;       // out
	u64 smoothed;
	u64 base;
	u64 packet;
	u64 window;      // out
	u64 others;      // that go first
	u64 first;       // out
	u64 known;       // out
};

SEC("syscall") int judge(struct judged *t)
{
	struct agreement a = t->agreement;
	struct held h = t->held;
	struct round r = t->round;
	u64 rate, share;

	hold_judge(&a, &h, &r);
	// the verifier takes no sum of this pointer kept from before
	__asm__ volatile("" : "+r"(t));
	rate = hold_rate(&a, &h);
	share = hold_share(rate, t->light, t->weights, t->weight);
	t->window = hold_window(&a, share, t->smoothed, t->base, t->packet);
	t->share = share;
	t->first = hold_first(rate, t->others);
	t->known = hold_known(&h, share);
	t->rate = rate;
	t->held = h;
	return 0;
}

struct filtered {
	struct westwood westwood;
	u64 now;
	u32 delivered;
	u32 smoothed;
	s32 rtt;
	u32 window;
	u64 threshold;   // out
};

SEC("syscall") int filter(struct filtered *t)
{
	struct westwood w = t->westwood;

	westwood_ack(&w, t->now, t->delivered, t->smoothed, t->rtt);
	t->threshold = westwood_threshold(&w, t->window);
	t->westwood = w;
	return 0;
}

char _license[] SEC("license") = "GPL";
