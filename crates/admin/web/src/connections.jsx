// Live connections, and one in full.

import { bytes, count, delay, percent, rate, size, span } from "./format.js";
import { useData, useListing } from "./hooks.js";
import { Choice, Empty, Find, Name, Pager, Problem, Table } from "./parts.jsx";

const PAGE = 50;

const where = (line) => line.destination ?? "nowhere yet";

export const columns = [
  {
    name: "To",
    class: "wide",
    show: (line) => (
      <a href={`#/connections/${line.id}`}>
        <Name>{where(line)}</Name>
      </a>
    ),
  },
  { name: "Whose", show: (line) => <Name>{line.account ?? line.client}</Name> },
  { name: "Class", show: (line) => line.class },
  { name: "Down", class: "num", show: (line) => rate(line.rate_down) },
  { name: "Up", class: "num", show: (line) => rate(line.rate_up) },
  { name: "Held back by", class: "why", show: (line) => <Name>{line.slowest}</Name> },
];

const more = [
  ...columns.slice(0, 5),
  { name: "Moved", class: "num", show: (line) => bytes(line.bytes_down + line.bytes_up) },
  { name: "Age", class: "num", show: (line) => span(line.age_seconds) },
  columns[5],
];

const ORDERS = [
  ["rate", "quickest first"],
  ["bytes", "most moved first"],
  ["age", "oldest first"],
  ["new", "newest first"],
];

export function Connections() {
  const list = useListing("/page/connections", "rate", PAGE, 2000);
  const { data, error } = list;
  return (
    <>
      <h1>Connections</h1>
      <form class="tools" role="search" onSubmit={(event) => event.preventDefault()}>
        <Find label="Find an account, a destination or a client" value={list.find} set={list.setFind} />
        <Choice label="Order" value={list.order} set={list.setOrder} options={ORDERS} />
      </form>
      <Problem error={error} />
      {data ? (
        <>
          <Table label="Connections" columns={more} rows={data.lines} id={(line) => line.id} empty="No connections." />
          <Pager offset={list.offset} count={PAGE} found={data.found} total={data.total} noun="connections" go={list.setOffset} />
        </>
      ) : (
        !error && <Empty>…</Empty>
      )}
    </>
  );
}

function Fact({ name, children }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Leg({ leg, buffers }) {
  const title = leg.side === "client" ? "Towards the client" : "Towards the destination";
  return (
    <section aria-labelledby={`leg-${leg.side}`}>
      <h2 id={`leg-${leg.side}`}>{title}</h2>
      <dl class="facts">
        <Fact name="Leg">
          <Name>{leg.profile}</Name>
          {leg.tunnel && (
            <>
              {" "}
              through the tunnel to <Name>{leg.tunnel}</Name>
            </>
          )}
        </Fact>
        <Fact name="Other end">{leg.peer ?? "–"}</Fact>
        <Fact name="Congestion control">{leg.congestion}</Fact>
        <Fact name="Round trip">
          {delay(leg.rtt_us)}, at least {delay(leg.min_rtt_us)}
        </Fact>
        <Fact name="Delivered">{rate(leg.delivery_rate)}</Fact>
        <Fact name="Loss">
          {percent(leg.loss)}, {count(leg.retransmits)} segments sent again
        </Fact>
        <Fact name="Not sent yet">{size(leg.unsent)}</Fact>
        {leg.tls && <Fact name="TLS">{leg.tls}</Fact>}
        {buffers.map((buffer) => (
          <Fact name={`Buffer, ${buffer.side}`} key={buffer.side}>
            {size(buffer.side === "send" ? leg.send_buffer : leg.receive_buffer)}, <Name>{buffer.how}</Name>; <Name>{buffer.why}</Name>
            {buffer.refused && (
              <>
                ; <Name>{buffer.refused}</Name>
              </>
            )}
          </Fact>
        ))}
        {leg.options
          .filter((option) => option.refused)
          .map((option) => (
            <Fact name={`Option ${option.option}`} key={option.option}>
              {option.asked} was refused: <Name>{option.refused}</Name>
            </Fact>
          ))}
      </dl>
    </section>
  );
}

export function Connection({ id }) {
  const { data, error } = useData(`/page/connections/${encodeURIComponent(id)}`, 1000);
  const back = (
    <p>
      <a href="#/connections">All connections</a>
    </p>
  );
  if (!data) {
    return (
      <>
        <h1>Connection {id}</h1>
        {error ? <Problem error={error} /> : <Empty>…</Empty>}
        {back}
      </>
    );
  }
  const { connection } = data;
  return (
    <>
      <h1>
        Connection {connection.id} to <Name>{where(connection)}</Name>
      </h1>
      <Problem error={error} />
      <p class="lead">
        Held back by <Name>{data.slowest}</Name>
      </p>
      <dl class="facts">
        <Fact name="Rate">
          {rate(connection.rate_down)} down, {rate(connection.rate_up)} up
        </Fact>
        <Fact name="Moved">
          {bytes(connection.bytes_down)} down, {bytes(connection.bytes_up)} up
        </Fact>
        <Fact name="Class">{data.class}</Fact>
        <Fact name="Route">
          <Name>{data.route}</Name>
        </Fact>
        <Fact name="Limits">
          <Name>{data.limits}</Name>
        </Fact>
        <Fact name="Client">
          {connection.client}, {connection.protocol}, {connection.state} for {span(connection.age_seconds)}
        </Fact>
        <Fact name="Eviction">{data.idle}</Fact>
      </dl>
      {connection.legs.map((leg) => (
        <Leg leg={leg} buffers={data.legs.find((one) => one.side === leg.side)?.buffers ?? []} key={leg.side} />
      ))}
      {back}
    </>
  );
}
