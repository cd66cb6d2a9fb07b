# A dumbbell in ns-2, one JSON line at the end:
#
#   ns ns2.tcl flows=100 rate=10 delay=20 queue=100 duration=300 variant=Newreno seed=1
#   ns ns2.tcl defaults=1        # the values that this version comes with
#
# rate in Mb/s and delay in ms, of the bottleneck; queue in packets. Flow i of N starts at i/N s and
# sends without end, over a link that is i × apart ns longer than the first one's. monitor=0 leaves the queue's counters out.

array set option {
    flows 100  rate 10  delay 20  queue 100  duration 300  variant Newreno  seed 1  monitor 1  defaults 0
    apart 1
}
foreach argument $argv {
    if {![regexp {^([a-z]+)=(.+)$} $argument -> name value] || ![info exists option($name)]} {
        puts stderr "ns2.tcl: `$argument` is none of: [lsort [array names option]] (name=value)"
        exit 2
    }
    set option($name) $value
}

if {$option(defaults)} {
    set shared {
        window_ windowInit_ windowInitOption_ tcpTick_ minrto_ maxrto_ rtxcur_init_ srtt_init_ rttvar_init_
        rttvar_exp_ syn_ delay_growth_ bugFix_ bugFix_ts_ bugFix_ack_ bugfix_ss_ lessCareful_ singledup_
        LimTransmitFix_ exitFastRetrans_ numdupacks_ numdupacksFrac_ slow_start_restart_ restart_bugfix_
        rfc2988_ timerfix_ timestamps_ ts_resetRTO_ overhead_ maxburst_ aggressive_maxburst_ maxcwnd_
        precisionReduce_ increase_num_ decrease_num_ windowOption_ max_ssthresh_ packetSize_
        tcpip_base_hdr_size_ useHeaders_ ecn_ frto_enabled_ partial_ack_ oldCode_
    }
    set own {newreno_changes_ newreno_changes1_ partial_window_deflation_ exit_recovery_fix_}
    foreach {class names} [list Agent/TCP $shared Agent/TCP/Newreno $own \
            Agent/TCPSink {packetSize_ maxSackBlocks_ ts_echo_bugfix_ generateDSacks_} \
            Queue {limit_} Queue/DropTail {drop_front_ queue_in_bytes_}] {
        foreach name $names {
            puts "$class set $name [$class set $name]"
        }
    }
    exit 0
}

# Before the agents are made: they take their first ssthresh from window_ when they are.
Agent/TCP set window_ 64
Agent/TCP set packetSize_ 1460
# long enough that nothing is lost on access links
Queue set limit_ 10000

set ns [new Simulator]
$defaultRNG seed $option(seed)

set near [$ns node]
set far [$ns node]
$ns duplex-link $near $far $option(rate)Mb $option(delay)ms DropTail
$ns queue-limit $near $far $option(queue)
$ns queue-limit $far $near $option(queue)

set access [expr {max(100, 10 * $option(rate))}]
set sink_class [expr {$option(variant) eq "Sack1" ? "Agent/TCPSink/Sack1" : "Agent/TCPSink"}]
for {set i 0} {$i < $option(flows)} {incr i} {
    set from [$ns node]
    set to [$ns node]
    $ns duplex-link $from $near ${access}Mb [expr {1.0 + $i * $option(apart) * 1e-6}]ms DropTail
    $ns duplex-link $far $to ${access}Mb 1ms DropTail
    set tcp($i) [new Agent/TCP/$option(variant)]
    set sink($i) [new $sink_class]
    $ns attach-agent $from $tcp($i)
    $ns attach-agent $to $sink($i)
    $ns connect $tcp($i) $sink($i)
    set ftp($i) [new Application/FTP]
    $ftp($i) attach-agent $tcp($i)
    $ns at [expr {double($i) / $option(flows)}] "$ftp($i) start"
}
if {$option(monitor)} {
    set monitor [$ns monitor-queue $near $far ""]
}

# the first event: what came before is set-up and routes
proc begin {} {
    global begun
    set begun [clock microseconds]
}

proc finish {} {
    global ns option begun tcp sink monitor access
    set loop [expr {([clock microseconds] - $begun) / 1e6}]
    # the scheduler numbers its events
    set events [$ns at [$ns now] ""]
    foreach name {sent retransmitted timeouts delivered} {
        set $name 0
    }
    for {set i 0} {$i < $option(flows)} {incr i} {
        incr sent [$tcp($i) set ndatapack_]
        incr retransmitted [$tcp($i) set nrexmitpack_]
        incr timeouts [$tcp($i) set nrexmit_]
        # in order, with headers; the first packet is the SYN, of 40 bytes
        incr delivered [expr {([$sink($i) set bytes_] - 40) / 1500}]
    }
    set drops null
    set departed null
    if {$option(monitor)} {
        set drops [$monitor set pdrops_]
        set departed [$monitor set pdepartures_]
    }
    puts "{\"tool\": \"ns-2\", \"flows\": $option(flows), \"rate_mbit\": $option(rate),\
        \"delay_ms\": $option(delay), \"queue\": $option(queue), \"access_mbit\": $access,\
        \"variant\": \"$option(variant)\", \"duration_s\": $option(duration), \"seed\": $option(seed),\
        \"sent\": $sent, \"retransmitted\": $retransmitted, \"timeouts\": $timeouts,\
        \"drops\": $drops, \"departed\": $departed, \"delivered\": $delivered,\
        \"events\": $events, \"loop_s\": [format %.6f $loop]}"
    exit 0
}

$ns at 0.0 "begin"
$ns at $option(duration) "finish"
$ns run
