-- +goose Up
CREATE TABLE removed_tasks (
    task           TEXT   NOT NULL PRIMARY KEY,
    owner          TEXT   NOT NULL,
    key_digest     TEXT,
    request_digest TEXT   NOT NULL,
    removed_by     TEXT   NOT NULL,
    removed_at     BIGINT NOT NULL,
    told           BIGINT NOT NULL,
    UNIQUE (owner, key_digest)
);

-- What nobody may refer to any more, until it is gone from the disk.
CREATE TABLE loose_blobs (
    digest TEXT NOT NULL PRIMARY KEY
);
CREATE TABLE loose_logs (
    task TEXT NOT NULL PRIMARY KEY
);

-- NULL: written before this column was; the spec says it.
ALTER TABLE tasks ADD COLUMN bundle TEXT;
CREATE INDEX tasks_by_bundle ON tasks (bundle);
CREATE INDEX tasks_ended ON tasks (ended_at);
ALTER TABLE outputs ADD COLUMN path TEXT NOT NULL DEFAULT '';
ALTER TABLE outputs ADD COLUMN removed_at BIGINT;
CREATE INDEX outputs_by_digest ON outputs (digest);

-- +goose Down
DROP INDEX outputs_by_digest;
ALTER TABLE outputs DROP COLUMN removed_at;
ALTER TABLE outputs DROP COLUMN path;
DROP INDEX tasks_ended;
DROP INDEX tasks_by_bundle;
ALTER TABLE tasks DROP COLUMN bundle;
DROP TABLE loose_logs;
DROP TABLE loose_blobs;
DROP TABLE removed_tasks;
