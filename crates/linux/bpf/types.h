// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
// What the programs here use of the kernel's types, and the few words of BPF they speak. Names are the
// kernel's; where each field stands is looked up in the running kernel's BTF when a program is loaded
// (CO-RE), so that only names matter and what is not used is left out.
#ifndef EKIDEN_TYPES_H
#define EKIDEN_TYPES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define KERNEL __attribute__((preserve_access_index))
// a map's attributes are written as types, which is how libbpf reads them
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

enum { MAP_ARRAY = 2, MAP_SK_STORAGE = 24 };    // bpf_map_type
enum { NO_PREALLOC = 1, CREATE = 1 };           // BPF_F_NO_PREALLOC, BPF_SK_STORAGE_GET_F_CREATE
enum { TX_START = 0, TIME_OUT = 3 };            // tcp_ca_event: the first packet of those under way; no answer (CA_EVENT_LOSS)
enum { PACING_NONE = 0, PACING_NEEDED = 1 };    // sk_pacing
enum { NON_RESTRICTED = 1 };                    // TCP_CONG_NON_RESTRICTED: anybody may choose it

// helpers, by the numbers of include/uapi/linux/bpf.h
static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*const ktime_ns)(void) = (void *)5;
static void *(*const sk_storage_get)(void *map, void *sk, void *value, u64 flags) = (void *)107;

struct sock {
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_pacing_status;
} KERNEL;

struct inet_connection_sock_af_ops {
	u16 net_header_len;
} KERNEL;

struct inet_connection_sock {
	const struct inet_connection_sock_af_ops *icsk_af_ops;
	u8 icsk_retransmits;
	u64 icsk_ca_priv[13];
} KERNEL;

struct minmax_sample {
	u32 t;
	u32 v;
} KERNEL;

struct minmax {
	struct minmax_sample s[3];
} KERNEL;

struct tcp_rack {
	u32 rtt_us;
} KERNEL;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_wnd;
	u32 mss_cache;
	u32 snd_cwnd;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 lost_out;
	u32 retrans_out;
	u16 tcp_header_len;
	u32 lost;
	struct minmax rtt_min;
	u32 write_seq;
	u32 snd_nxt;
	u32 snd_una;
	u32 srtt_us;
	u32 packets_out;
	u32 delivered;
	struct tcp_rack rack;
} KERNEL;

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
	u32 in_flight;
} KERNEL;

// members by name; libbpf finds the kernel's place for each
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*cwnd_event)(struct sock *sk, u32 event);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	void (*cong_control)(struct sock *sk);
	u32 (*undo_cwnd)(struct sock *sk);
	u32 (*sndbuf_expand)(struct sock *sk);
	char name[16];
	u32 flags;
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
};

#endif
