-- +goose Up
-- Machines that are set apart: draining, quarantined or forgotten.
CREATE TABLE worker_marks (
    worker    TEXT   NOT NULL PRIMARY KEY,
    state     TEXT   NOT NULL,
    reason    TEXT   NOT NULL,
    marked_by TEXT   NOT NULL,
    marked_at BIGINT NOT NULL
);

-- +goose Down
DROP TABLE worker_marks;
