-- Relays ask for one period, and for those since a time; what is over may be years.
CREATE INDEX traffic_begun ON traffic (begun);
