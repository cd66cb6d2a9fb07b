// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// Westwood+ for the kernel's TCP (algorithms/split-connections C.8): Reno's growth, and after a loss the window that the
// measured rate of deliveries fills in the least round trip.
#include "westwood.h"

// the kernel's own Reno
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) SEC(".ksyms");
extern u32 tcp_reno_undo_cwnd(struct sock *sk) SEC(".ksyms");

INLINE struct westwood *own(struct tcp_sock *tp) { return (void *)tp->inet_conn.icsk_ca_priv; }

SEC("struct_ops/westwood_init") void westwood_init(u64 *ctx)
{
	struct westwood *w = own((void *)ctx[0]);

	w->began = 0;
	w->first = 0;
	w->second = 0;
	w->delivered = 0;
	w->rtt_min = 0;
}

SEC("struct_ops/westwood_acked") void westwood_acked(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];
	const struct ack_sample *sample = (void *)ctx[1];

	westwood_ack(own(tp), ktime_ns() / 1000, tp->delivered, tp->srtt_us >> 3, sample->rtt_us);
}

SEC("struct_ops/westwood_avoid") void westwood_avoid(u64 *ctx)
{
	tcp_reno_cong_avoid((void *)ctx[0], ctx[1], ctx[2]);
}

SEC("struct_ops/westwood_ssthresh") u32 westwood_ssthresh(u64 *ctx)
{
	struct tcp_sock *tp = (void *)ctx[0];

	return westwood_threshold(own(tp), tp->snd_cwnd);
}

SEC("struct_ops/westwood_undo") u32 westwood_undo(u64 *ctx)
{
	return tcp_reno_undo_cwnd((void *)ctx[0]);
}

SEC(".struct_ops.link") struct tcp_congestion_ops ekiden_westwood = {
	.init = (void *)westwood_init,
	.pkts_acked = (void *)westwood_acked,
	.cong_avoid = (void *)westwood_avoid,
	.ssthresh = (void *)westwood_ssthresh,
	.undo_cwnd = (void *)westwood_undo,
	.flags = NON_RESTRICTED,
	.name = "ekiden_westwood",
};

char _license[] SEC("license") = "GPL";
