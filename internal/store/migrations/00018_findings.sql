-- +goose Up
-- In what a patch may bite, and what that comes to; empty: nobody looked.
ALTER TABLE outputs ADD COLUMN findings TEXT NOT NULL DEFAULT 'null';
ALTER TABLE outputs ADD COLUMN verdict TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE outputs DROP COLUMN verdict;
ALTER TABLE outputs DROP COLUMN findings;
