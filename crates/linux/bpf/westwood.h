// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Westwood+'s estimate of the bandwidth in integers, as `ekiden_model::congestion::westwood` has it in
// floating point. Times are microseconds, rates 1/1024 of a packet a second.
#ifndef EKIDEN_WESTWOOD_H
#define EKIDEN_WESTWOOD_H

#include "types.h"

enum {
	WESTWOOD_MICROS = 1000000,
	WESTWOOD_SCALE = 1024,
	WESTWOOD_SAMPLE = 50000,    // a sample takes a round trip, and at least this
};

// lives in the 104 bytes that a socket has for its congestion control
struct westwood {
	u64 began;       // of the sample; 0 before the first ACK
	u64 first;       // both filters; 0 before the first sample
	u64 second;
	u32 delivered;   // when the sample began
	u32 rtt_min;     // 0: none yet
};

INLINE void westwood_ack(struct westwood *w, u64 now, u32 delivered, u32 smoothed, s32 rtt)
{
	u64 took, sample, span = smoothed > WESTWOOD_SAMPLE ? smoothed : WESTWOOD_SAMPLE;

	if (rtt > 0 && (!w->rtt_min || (u32)rtt < w->rtt_min))
		w->rtt_min = rtt;
	if (!w->began) {
		w->began = now;
		w->delivered = delivered;
		return;
	}
	took = now - w->began;
	if (took < span)
		return;
	sample = (u64)(delivered - w->delivered) * WESTWOOD_MICROS * WESTWOOD_SCALE / took;
	if (!w->second) {
		w->first = sample;
		w->second = sample;
	} else {
		w->first = (7 * w->first + sample) / 8;
		w->second = (7 * w->second + w->first) / 8;
	}
	w->began = now;
	w->delivered = delivered;
}

// packets: what the estimated bandwidth fills in the least round trip; without an estimate half of what is there
INLINE u32 westwood_threshold(const struct westwood *w, u32 window)
{
	u64 filled = w->second && w->rtt_min ? w->second * w->rtt_min / WESTWOOD_MICROS / WESTWOOD_SCALE : window / 2;

	return filled > 2 ? filled : 2;
}

#endif
