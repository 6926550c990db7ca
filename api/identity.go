package api

import "time"

// RunIdentity is the installation's issuer of the tokens that say who a run is.
type RunIdentity struct {
	Issuer    string        `json:"issuer" doc:"As relying parties know it."`
	Discovery string        `json:"discovery" doc:"Where they look first."`
	Keys      []IdentityKey `json:"keys" doc:"In the order in which they sign."`
}

// IdentityKey is a key that tokens are signed with, without its private part.
type IdentityKey struct {
	ID             string     `json:"kid"`
	Algorithm      string     `json:"algorithm" enum:"RS256,ES256"`
	State          string     `json:"state" enum:"next,current,retired" doc:"next: published, and signs later. retired: tokens that it signed may still be shown."`
	CreatedAt      time.Time  `json:"createdAt"`
	SignsFrom      time.Time  `json:"signsFrom"`
	PublishedUntil *time.Time `json:"publishedUntil,omitempty" doc:"Absent while no end is set."`
}

// IdentityRotation asks for a new key.
type IdentityRotation struct {
	Algorithm string `json:"algorithm,omitempty" enum:"RS256,ES256" doc:"RS256 where it is left out."`
	Now       bool   `json:"now,omitempty" doc:"It signs at once and every other key is forgotten: for a key that others may have."`
}
