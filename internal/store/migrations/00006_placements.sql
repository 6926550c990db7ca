-- +goose Up
CREATE TABLE placements (
    sandbox TEXT NOT NULL PRIMARY KEY,
    worker  TEXT NOT NULL
);
-- What runs already stays where it is known to be.
INSERT INTO placements SELECT s.id, t.worker FROM sandboxes s JOIN tasks t ON t.id = s.task
    WHERE t.ended_at IS NULL AND t.worker <> '';

-- +goose Down
DROP TABLE placements;
