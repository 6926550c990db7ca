// Package archive packs files into a tar stream and unpacks one, inside a sandbox.
// It runs with the workload's own credentials and goes down from the folder that
// was opened through folders alone, so that neither a stream nor a link, laid
// before or meanwhile, leads anywhere else. A tree has many files: each costs as
// few system calls as there can be, since a sandbox's are dear. Owners, set-id
// bits, devices and pipes are neither packed nor unpacked.
package archive
