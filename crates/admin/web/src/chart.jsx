// Charts of the history.

import { useEffect, useRef, useState } from "preact/hooks";
import { useData } from "./hooks.js";
import { moment } from "./format.js";

const SPANS = [
  ["hour", "1 hour"],
  ["day", "24 hours"],
  ["week", "7 days"],
  ["month", "30 days"],
];
const HEIGHT = 150;
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000];

/** The library, once. */
let library = null;
function useLibrary() {
  const [uPlot, setUPlot] = useState(null);
  useEffect(() => {
    let wanted = true;
    library ??= import(CHARTS);
    library.then(
      (module) => wanted && setUPlot(() => module.default),
      () => (library = null),
    );
    return () => (wanted = false);
  }, []);
  return uPlot;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function axisTime(unit) {
  const day = { month: "short", day: "numeric" };
  const hour = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return (_, splits) =>
    splits.map((at) => {
      const date = new Date(at * 1000);
      const midnight = date.getHours() === 0 && date.getMinutes() === 0;
      return date.toLocaleString("en-GB", unit === "days" || midnight ? day : hour);
    });
}

function options({ lines, format, least, whole }, step, width, onPoint) {
  const ink = color("--soft");
  const grid = { stroke: color("--line"), width: 1 };
  const font = "12px system-ui, sans-serif";
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 6 } },
    padding: [8, 22, 0, 0],
    scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(most * 1.05, least)] } },
    axes: [
      { stroke: ink, font, grid: { show: false }, ticks: { show: false }, size: 28, space: 70, values: axisTime(step >= 3600 ? "days" : "hours") },
      { stroke: ink, font, grid, ticks: { show: false }, size: 76, space: 34, ...(whole && { incrs: WHOLE }), values: (_, splits) => splits.map((value) => (value === 0 ? "0" : format(value))) },
    ],
    series: [
      {},
      ...lines.map((line) => ({
        label: line.name,
        stroke: color(line.color),
        fill: line.fill ? `${color(line.color)}22` : undefined,
        width: 1.5,
        spanGaps: false,
        points: { show: false },
      })),
    ],
    hooks: { setCursor: [(plot) => onPoint(plot.cursor.idx)] },
  };
}

/** One drawing: `plot.lines` name the rows of `chart` and their colours; the scale reaches `plot.least`, or more. */
function Plot({ chart, plot }) {
  const { lines, format, label } = plot;
  const place = useRef(null);
  const [point, setPoint] = useState(null);
  const [scheme, setScheme] = useState(0);
  useEffect(() => {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const on = () => setScheme((n) => n + 1);
    dark.addEventListener("change", on);
    return () => dark.removeEventListener("change", on);
  }, []);
  const rows = lines.map((line) => chart.rows[line.row]);
  const uPlot = useLibrary();
  useEffect(() => {
    if (!uPlot) return;
    const times = rows[0].map((_, n) => chart.from + n * chart.step);
    const width = () => Math.max(200, place.current.clientWidth);
    const drawn = new uPlot(options(plot, chart.step, width(), setPoint), [times, ...rows], place.current);
    const observer = new ResizeObserver(() => drawn.setSize({ width: width(), height: HEIGHT }));
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      drawn.destroy();
    };
  }, [chart, scheme, uPlot]);
  const last = rows[0].findLastIndex((_, n) => rows.some((row) => row[n] != null));
  const at = point ?? last;
  const most = lines.map((line, n) => `${line.name} at most ${format(rows[n].reduce((a, b) => Math.max(a, b ?? 0), 0))}`);
  return (
    <figure class="plot">
      <figcaption>
        <span class="title">{label}</span>
        {lines.map((line, n) => (
          <span class="key" key={line.row}>
            <svg class={`swatch ${line.row}`} viewBox="0 0 10 10" aria-hidden="true">
              <rect width="10" height="10" rx="2" />
            </svg>
            {line.name} <b>{format(rows[n][at])}</b>
          </span>
        ))}
        <span class="when">{at >= 0 ? moment(new Date((chart.from + at * chart.step) * 1000)) : ""}</span>
      </figcaption>
      <div class="drawing" ref={place} role="img" aria-label={`${label}: ${most.join(", ")}`} />
    </figure>
  );
}

/** Drawings of a series, and how far back they go. */
export function History({ series, plots, name }) {
  const [span, setSpan] = useState("hour");
  const path = `/page/history?series=${encodeURIComponent(series)}&span=${span}`;
  const { data, error } = useData(path, span === "hour" ? 10_000 : 60_000);
  return (
    <div class="history">
      <fieldset class="spans">
        <legend>History of {name}</legend>
        {SPANS.map(([value, text]) => (
          <label key={value}>
            <input type="radio" name={`span-${series}`} checked={span === value} onChange={() => setSpan(value)} />
            <span>{text}</span>
          </label>
        ))}
      </fieldset>
      <div class={`plots of-${plots.length}`}>{data && plots.map((plot) => <Plot key={`${plot.label} ${span}`} chart={data} plot={plot} />)}</div>
      {!data && <p class="empty">{error ? error.message : "…"}</p>}
    </div>
  );
}
