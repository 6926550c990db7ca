package task

import "time"

// Removed is what is remembered of a task whose rows are gone. Its records in
// the audit and its receipt stay.
type Removed struct {
	Task  string    `json:"task"`
	Owner string    `json:"owner"` // who had asked for the task
	By    string    `json:"by"`    // a user, or Retention
	At    time.Time `json:"at"`
}

// Retention is who removes what is older than it is kept.
const Retention = "retention"

// Removal is what a removal came to.
type Removal struct {
	Removed
	Freed      int   `json:"freed"`      // blobs and folders of logs that are gone from the disk
	FreedBytes int64 `json:"freedBytes"` // of the blobs
	Shared     int   `json:"shared"`     // blobs that stay, since other tasks refer to them
	Later      int   `json:"later"`      // what is still to go; it is tried again
}
