// The library for charts, in a file of its own: it is asked for once there is a chart.

export { default } from "uplot";
