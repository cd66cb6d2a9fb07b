-- A device behind a tunnel is known by a peer, not by a relay.
UPDATE device SET kind = 'peer' WHERE kind = 'relay';
