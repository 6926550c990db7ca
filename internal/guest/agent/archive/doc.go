// Package archive packs files into a tar stream and unpacks one, inside a sandbox.
// It runs with the workload's own credentials and reaches everything through the
// folder that was opened, so that neither a stream nor a link, laid before or
// meanwhile, leads anywhere else. Owners, set-id bits, devices and pipes are
// neither packed nor unpacked.
package archive
