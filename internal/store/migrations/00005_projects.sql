-- +goose Up
CREATE TABLE projects (
    name       TEXT   NOT NULL PRIMARY KEY,
    text       TEXT   NOT NULL,
    digest     TEXT   NOT NULL,
    set_by     TEXT   NOT NULL,
    set_at     BIGINT NOT NULL
);

ALTER TABLE tasks ADD COLUMN layers TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE tasks DROP COLUMN layers;
DROP TABLE projects;
