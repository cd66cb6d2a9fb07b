// The views: the path behind `#/`, and the name. index.html has them, too.

export const VIEWS = [
  ["", "Overview"],
  ["connections", "Connections"],
  ["accounts", "Accounts"],
  ["peers", "Peers"],
  ["alerts", "Alerts"],
  ["doctor", "Doctor"],
  ["reports", "Reports"],
  ["audit", "Audit log"],
  ["configuration", "Configuration"],
];
