package main

import "github.com/cofferdam/cofferdam/internal/credential"

// minters are the adapters that make short-lived credentials, by kind.
func (p *plane) minters() map[string]credential.Minter {
	return map[string]credential.Minter{}
}
