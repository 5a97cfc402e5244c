package multicast

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// ErrReport is wrapped by the error for a membership report that is damaged.
var ErrReport = errors.New("multicast: bad membership report")

// Kind says what a Record states about its sources (RFC 3376 section 4.2.12,
// RFC 3810 section 5.2.12).
type Kind uint8

// The kinds of Records. Other values are unknown and ignored.
const (
	IsInclude       Kind = 1
	IsExclude       Kind = 2
	ChangeToInclude Kind = 3
	ChangeToExclude Kind = 4
	AllowSources    Kind = 5
	BlockSources    Kind = 6
)

// Record is what a report states about one group. A report of a version without
// sources is ChangeToExclude without sources, a leave or done message is
// ChangeToInclude without sources (RFC 3376 section 7.3.2).
type Record struct {
	Group   netip.Addr
	Kind    Kind
	Sources []netip.Addr
}

// hopLimit is that of all IGMP and MLD messages (RFC 3376 section 4, RFC 3810
// section 5).
const hopLimit = 1

// ReadReport returns the records of an IP packet that is a membership report,
// or a leave or done message. isReport is false for all other packets, and for
// those with a hop limit that no such message has. The checksum and all lengths
// are checked. It borrows packet until return.
func ReadReport(packet []byte) (records []Record, isReport bool, err error) {
	switch {
	case len(packet) < header.IPv4MinimumSize:
		return nil, false, nil
	case packet[0]>>4 == header.IPv4Version:
		return readIGMP(header.IPv4(packet))
	case packet[0]>>4 == header.IPv6Version && len(packet) >= header.IPv6MinimumSize:
		return readMLD(header.IPv6(packet))
	}
	return nil, false, nil
}

func readIGMP(ip header.IPv4) ([]Record, bool, error) {
	if !ip.IsValid(len(ip)) || ip.TransportProtocol() != header.IGMPProtocolNumber ||
		ip.More() || ip.FragmentOffset() != 0 || ip.TTL() != hopLimit {
		return nil, false, nil
	}
	msg := ip.Payload()
	if len(msg) == 0 {
		return nil, false, nil
	}
	var kind Kind
	switch header.IGMP(msg).Type() {
	case header.IGMPv1MembershipReport, header.IGMPv2MembershipReport:
		kind = ChangeToExclude
	case header.IGMPLeaveGroup:
		kind = ChangeToInclude
	case header.IGMPv3MembershipReport:
	default:
		return nil, false, nil
	}
	switch {
	case len(msg) < header.IGMPMinimumSize:
		return nil, true, fmt.Errorf("%w: IGMP message of %d bytes: %w", ErrReport, len(msg), io.ErrUnexpectedEOF)
	case checksum.Checksum(msg, 0) != 0xffff:
		return nil, true, fmt.Errorf("%w: wrong IGMP checksum", ErrReport)
	case kind != 0:
		return appendRecord(nil, kind, header.IGMP(msg).GroupAddress(), nil), true, nil
	}
	var records []Record
	it := header.IGMPv3Report(msg).GroupAddressRecords()
	for {
		r, disposition := it.Next()
		switch disposition {
		case header.IGMPv3ReportGroupAddressRecordIteratorNextOk:
			sources, ok := r.Sources()
			if !ok {
				return nil, true, fmt.Errorf("%w: IGMPv3 sources: %w", ErrReport, io.ErrUnexpectedEOF)
			}
			records = appendRecord(records, Kind(r.RecordType()), r.GroupAddress(), &sources)
		case header.IGMPv3ReportGroupAddressRecordIteratorNextDone:
			return records, true, nil
		default:
			return nil, true, fmt.Errorf("%w: IGMPv3 record: %w", ErrReport, io.ErrUnexpectedEOF)
		}
	}
}

// Offsets and sizes of what precedes an MLD message: a hop-by-hop header, with
// the router alert option, right after the IPv6 header (RFC 3810 section 5).
const (
	hopByHopNextOff = 0
	hopByHopLenOff  = 1 // in units of 8 bytes, without the first
	hopByHopUnit    = 8
	mldBodyLen      = header.MLDMinimumSize
	mldv2FixedLen   = 4 // reserved 2 + number of records 2
)

func readMLD(ip header.IPv6) ([]Record, bool, error) {
	if !ip.IsValid(len(ip)) || ip.HopLimit() != hopLimit ||
		ip.NextHeader() != uint8(header.IPv6HopByHopOptionsExtHdrIdentifier) {
		return nil, false, nil
	}
	msg := ip.Payload()
	if len(msg) < hopByHopUnit || msg[hopByHopNextOff] != uint8(header.ICMPv6ProtocolNumber) {
		return nil, false, nil
	}
	skip := hopByHopUnit * (1 + int(msg[hopByHopLenOff]))
	if len(msg) < skip+header.ICMPv6MinimumSize {
		return nil, false, nil
	}
	icmp := header.ICMPv6(msg[skip:])
	var kind Kind
	switch icmp.Type() {
	case header.ICMPv6MulticastListenerReport:
		kind = ChangeToExclude
	case header.ICMPv6MulticastListenerDone:
		kind = ChangeToInclude
	case header.ICMPv6MulticastListenerV2Report:
	default:
		return nil, false, nil
	}
	sum := header.PseudoHeaderChecksum(header.ICMPv6ProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), uint16(len(icmp)))
	if checksum.Checksum(icmp, sum) != 0xffff {
		return nil, true, fmt.Errorf("%w: wrong MLD checksum", ErrReport)
	}
	body := icmp.MessageBody()
	if kind != 0 {
		if len(body) < mldBodyLen {
			return nil, true, fmt.Errorf("%w: MLD message of %d bytes: %w", ErrReport, len(icmp), io.ErrUnexpectedEOF)
		}
		return appendRecord(nil, kind, header.MLD(body).MulticastAddress(), nil), true, nil
	}
	if len(body) < mldv2FixedLen {
		return nil, true, fmt.Errorf("%w: MLD message of %d bytes: %w", ErrReport, len(icmp), io.ErrUnexpectedEOF)
	}
	var records []Record
	it := header.MLDv2Report(body).MulticastAddressRecords()
	for {
		r, disposition := it.Next()
		switch disposition {
		case header.MLDv2ReportMulticastAddressRecordIteratorNextOk:
			sources, ok := r.Sources()
			if !ok {
				return nil, true, fmt.Errorf("%w: MLDv2 sources: %w", ErrReport, io.ErrUnexpectedEOF)
			}
			records = appendRecord(records, Kind(r.RecordType()), r.MulticastAddress(), &sources)
		case header.MLDv2ReportMulticastAddressRecordIteratorNextDone:
			return records, true, nil
		default:
			return nil, true, fmt.Errorf("%w: MLDv2 record: %w", ErrReport, io.ErrUnexpectedEOF)
		}
	}
}

// appendRecord appends a record, unless it is of an unknown kind or about no
// multicast group (RFC 3376 section 4.2.12: silently ignored).
func appendRecord(records []Record, kind Kind, group tcpip.Address, sources *header.AddressIterator) []Record {
	g, ok := netip.AddrFromSlice(group.AsSlice())
	if !ok || !g.IsMulticast() || kind < IsInclude || kind > BlockSources {
		return records
	}
	r := Record{Group: g, Kind: kind}
	for sources != nil {
		s, more := sources.Next()
		if !more {
			break
		}
		if a, ok := netip.AddrFromSlice(s.AsSlice()); ok {
			r.Sources = append(r.Sources, a)
		}
	}
	return append(records, r)
}
