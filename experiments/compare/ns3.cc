// The same dumbbell in ns-3 (written for 3.37), one JSON line at the end:
//
//   ns3 --flows=100 --rate=10 --delay=20 --queue=100 --duration=300 --variant=Newreno --seed=1
//
// As near to ns2.tcl as ns-3's TCP permits: no delayed acknowledgements, no time stamps, initial window 2, receive
// window of 64 segments, least RTO 0.2 s. Reno is not there: ns-3's classic recovery is NewReno's.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

using namespace ns3;

namespace {

uint64_t timeouts = 0;
uint64_t drops = 0;

// Tells of each expiry of the retransmission timer.
class Counting : public TcpNewReno {
  public:
    static TypeId GetTypeId() {
        static TypeId id =
            TypeId("ekiden::Counting").SetParent<TcpNewReno>().AddConstructor<Counting>();
        return id;
    }
    void CwndEvent(Ptr<TcpSocketState>, const TcpSocketState::TcpCAEvent_t event) override {
        timeouts += event == TcpSocketState::CA_EVENT_LOSS;
    }
    Ptr<TcpCongestionOps> Fork() override { return CopyObject<Counting>(this); }
};

// Without end, from its start on.
class Source : public Application {
  public:
    Source(Address to) : to_(to) {}
    uint64_t sent = 0, retransmitted = 0;

  private:
    void StartApplication() override {
        socket_ = Socket::CreateSocket(GetNode(), TcpSocketFactory::GetTypeId());
        socket_->TraceConnectWithoutContext("Tx", MakeCallback(&Source::OnSent, this));
        socket_->SetSendCallback(MakeCallback(&Source::OnRoom, this));
        socket_->SetConnectCallback(MakeCallback(&Source::OnConnected, this),
                                    MakeNullCallback<void, Ptr<Socket>>());
        socket_->Connect(to_);
    }
    void OnConnected(Ptr<Socket> socket) { OnRoom(socket, socket->GetTxAvailable()); }
    void OnRoom(Ptr<Socket> socket, uint32_t) {
        while (socket->GetTxAvailable() >= 1460 && socket->Send(Create<Packet>(1460)) > 0) {
        }
    }
    void OnSent(Ptr<const Packet> packet, const TcpHeader& header, Ptr<const TcpSocketBase>) {
        if (packet->GetSize() == 0 || (header.GetFlags() & TcpHeader::SYN)) {
            return;
        }
        ++sent;
        SequenceNumber32 end = header.GetSequenceNumber() + packet->GetSize();
        if (sent > 1 && end <= highest_) {
            ++retransmitted;
        } else {
            highest_ = end;
        }
    }

    Address to_;
    Ptr<Socket> socket_;
    SequenceNumber32 highest_;
};

void OnDrop(Ptr<const Packet>) { ++drops; }

} // namespace

int main(int argc, char* argv[]) {
    uint32_t flows = 100, queue = 100, seed = 1;
    double rate = 10, delay = 20, duration = 300, apart = 1;
    std::string variant = "Newreno";
    CommandLine line(__FILE__);
    line.AddValue("flows", "flows", flows);
    line.AddValue("rate", "bottleneck, Mb/s", rate);
    line.AddValue("delay", "bottleneck, ms one way", delay);
    line.AddValue("queue", "bottleneck, packets", queue);
    line.AddValue("duration", "s", duration);
    line.AddValue("variant", "Newreno or Sack1", variant);
    line.AddValue("apart", "ns by which each sender's link is longer than the one before", apart);
    line.AddValue("seed", "of the random numbers", seed);
    line.Parse(argc, argv);
    if (variant != "Newreno" && variant != "Sack1") {
        std::fprintf(stderr, "ns3: variant %s is not there: Newreno or Sack1\n", variant.c_str());
        return 2;
    }
    RngSeedManager::SetSeed(seed);

    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(Counting::GetTypeId()));
    Config::SetDefault("ns3::TcpL4Protocol::RecoveryType",
                       TypeIdValue(TcpClassicRecovery::GetTypeId()));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(variant == "Sack1"));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1460));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(64 * 1460));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(128 * 1460));

    NodeContainer routers;
    routers.Create(2);
    InternetStackHelper stack;
    stack.Install(routers);
    auto link = [](double mbit, double ms, uint32_t packets) {
        PointToPointHelper helper;
        helper.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(mbit * 1e6))));
        helper.SetChannelAttribute("Delay", TimeValue(Seconds(ms / 1e3)));
        helper.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize",
                        QueueSizeValue(QueueSize(QueueSizeUnit::PACKETS, packets)));
        return helper;
    };
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    // one queue a link, as in ns-2: none of the traffic control layer's above it
    auto connect = [&](PointToPointHelper helper, Ptr<Node> a, Ptr<Node> b) {
        NetDeviceContainer devices = helper.Install(a, b);
        Ipv4InterfaceContainer interfaces = addresses.Assign(devices);
        addresses.NewNetwork();
        TrafficControlHelper().Uninstall(devices);
        return std::make_pair(devices, interfaces);
    };
    // ns-2's limit counts the packet on the wire too
    uint32_t waiting = std::max(1U, queue - 1);
    auto bottleneck = connect(link(rate, delay, waiting), routers.Get(0), routers.Get(1)).first;
    // a full queue stops the device, and it is the layer above that drops; no other queue of this
    // router is ever full
    (void)bottleneck;
    routers.Get(0)->GetObject<TrafficControlLayer>()->TraceConnectWithoutContext(
        "TcDrop", MakeCallback(&OnDrop));

    double access = std::max(100.0, 10 * rate);
    std::vector<Ptr<Source>> sources;
    std::vector<Ptr<PacketSink>> sinks;
    for (uint32_t i = 0; i < flows; ++i) {
        NodeContainer ends;
        ends.Create(2);
        stack.Install(ends);
        connect(link(access, 1 + i * apart * 1e-6, 10000), ends.Get(0), routers.Get(0));
        auto far = connect(link(access, 1, 10000), routers.Get(1), ends.Get(1)).second;
        InetSocketAddress to(far.GetAddress(1), 5001);
        PacketSinkHelper helper("ns3::TcpSocketFactory", to);
        ApplicationContainer installed = helper.Install(ends.Get(1));
        installed.Start(Seconds(0));
        sinks.push_back(DynamicCast<PacketSink>(installed.Get(0)));
        Ptr<Source> source = Create<Source>(to);
        source->SetStartTime(Seconds(double(i) / flows));
        ends.Get(0)->AddApplication(source);
        sources.push_back(source);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    Simulator::Stop(Seconds(duration));
    auto begun = std::chrono::steady_clock::now();
    Simulator::Run();
    std::chrono::duration<double> loop = std::chrono::steady_clock::now() - begun;

    uint64_t sent = 0, retransmitted = 0, delivered = 0;
    for (const auto& source : sources) {
        sent += source->sent;
        retransmitted += source->retransmitted;
    }
    for (const auto& sink : sinks) {
        delivered += sink->GetTotalRx() / 1460;
    }
    std::printf("{\"tool\": \"ns-3\", \"flows\": %u, \"rate_mbit\": %g, \"delay_ms\": %g, \"queue\": %u, "
                "\"access_mbit\": %g, \"variant\": \"%s\", \"duration_s\": %g, \"seed\": %u, "
                "\"sent\": %llu, \"retransmitted\": %llu, \"timeouts\": %llu, \"drops\": %llu, "
                "\"departed\": null, \"delivered\": %llu, \"events\": %llu, \"loop_s\": %.6f}\n",
                flows, rate, delay, queue, access, variant.c_str(), duration, seed,
                (unsigned long long)sent, (unsigned long long)retransmitted,
                (unsigned long long)timeouts, (unsigned long long)drops,
                (unsigned long long)delivered,
                (unsigned long long)Simulator::GetEventCount(), loop.count());
    Simulator::Destroy();
    return 0;
}
