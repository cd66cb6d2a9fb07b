use ekiden_emulator::*;
use ekiden_linux::{clock, packet::{Receiver, Sender}};
use ekiden_model::{link::*, units::*};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let delay = Span::from_micros(args[1].parse().unwrap());
    let mtu: u32 = args[2].parse().unwrap();
    let workers: usize = args[3].parse().unwrap();
    let secs: u64 = args[4].parse().unwrap();
    let config = Config { discipline: Discipline::DropTail(Bound::Unlimited), serialiser: Serialiser::Infinite, framing: 0, loss: Loss::None, delay, jitter: Span::ZERO, reorder: false, seed: 1 };
    let begun = clock::now();
    let largest = if args.len() > 5 { 65_600 } else { mtu as usize + 14 };
    let make = |name: &str, from: &str, to: &str| Direction::new(Parts { name: name.into(), config: config.clone(), receiver: Receiver::open(from, largest, 32 << 20).unwrap(), sender: Sender::open(to).unwrap(), recorder: None }, mtu, begun);
    let up = make("up", "m0", "m1");
    let down = make("down", "m1", "m0");
    let stop = Stop::new().unwrap();
    let mut threads = vec![];
    if workers == 1 { let s = stop.clone(); threads.push(std::thread::spawn(move || run(vec![up, down], &s))); }
    else { for d in [up, down] { let s = stop.clone(); threads.push(std::thread::spawn(move || run(vec![d], &s))); } }
    std::thread::sleep(std::time::Duration::from_secs(secs));
    stop.ask();
    for t in threads { for (name, _, tally) in t.join().unwrap() { println!("{name}: {} packets, missed {} refused {} ignored {} super {} lateness {:?} late {}", tally.link.delivered, tally.missed, tally.refused, tally.ignored, tally.super_packets, tally.lateness.summary(), tally.late); } }
}
