-- Which start of ekiden wrote a relay's row, and what the row had before: two that run by one identity see each other.
ALTER TABLE relay ADD COLUMN run TEXT NOT NULL DEFAULT '';
ALTER TABLE relay ADD COLUMN run_before TEXT NOT NULL DEFAULT '';
ALTER TABLE relay ADD COLUMN seen_before BIGINT NOT NULL DEFAULT 0;
