// Package relay carries direct sockets between programs of two hosts through the fabric.
// On each host the node is the other side of a complete segment (package segment), and the
// two nodes copy the content of one to the other over VELO and RMA, where it is seen,
// counted and delayed like all other traffic of the fabric.
//
// # Architecture
//
//	program ── segment ── Engine ══ VELO, RMA PUT ══ Engine ── segment ── program
//
//	queue   ─▶ Take ── message ─────── VELO ───────────────▶ Put ─▶ queue
//	queue   ─▶ Pack ── batch ───────── RMA PUT ── stage ─────▶ Put ─▶ queue
//	ring    ───────────────────────── RMA PUT ─────────────────▶ ring
//	consumed, freed ◀─ GiveBack ◀──── VELO: back ◀── Returned ◀─ consumed, freed
//	fallen back, returned, closed ◀─ Say ◀── VELO: mark ◀────── Mark ◀─ fallen back, returned, closed
//
// Both segments have queues and rings of one size, and the messages of both have the same
// numbers. So nothing is buffered here, and a program gets no space back before the far
// one has consumed it: bytes that the far program has not received are still in the near
// one's segment, and may go back to TCP from any byte.
//
// The ring that a node writes for its program is registered with the ATU for the one node at the
// other end, and nobody else. A message that announces data in the ring does not wait for its PUT,
// unless the peer has no places for batches yet: its receiver does.
//
// Equation 5.3 is applied to what a poll has gathered, not to each send. Up to 8 messages for a
// virtual device of a node go by VELO one by one. More go by one PUT to a place that the node has
// lent for that, and a message announces it (BATCH). Data of up to 16 KiB in a ring goes with its
// RMA_INFO then. Messages keep their order, however they go. A place goes through the states of
// placeState, and is used again only after the last one.
//
// The virtual device of a connection (thesis, equation 5.3) is its VPID, FirstVPID + port &
// 15: connections to one service have their own mailboxes and queues.
//
// # Messages
//
// These are versions 4 to 7 (Versions). They are VELO messages. Their type is the tag of the
// segment's message that they carry, or one of the relay's own. Numbers are little endian. A
// message marked Sel is for the connection that the last SELECT in this mailbox from that node has
// named. Its user tag is its stamp: the connection's key plus the number of messages before it,
// modulo 256. The user tag of the others is 0 unless stated.
//
//	type             payload
//	1, 2, 5..7  Sel  the message of the segment, as it is (SPEC.md, 3); a byte of zero if that is empty;
//	                 PAUSE is 6 with a byte of 1; 3: its sender has OFF, as MARK says
//	 3          Sel  bytes of the PUT that it waits for, which brings its data, and may bring
//	                 that of those after it 4; 0: none; then the segment's RMA_INFO
//	 4 BACK     Sel  messages consumed 8, bytes of the ring freed 8 (RMA_AVAIL)
//	 8 MARK     Sel  flags 1 (attention, bits 2..7), 1: PART, nothing of this program follows 1, zero 2, byte 4, message 8
//	 9 SELECT        connection, as the receiver has numbered it 4, the key that it has given 4, messages
//	                 for it that have come before 8, connection, as the sender has numbered it 4
//	10 OPEN          connection, as the sender has numbered it 4, NLA of the ring to write 8, slots 4, ring 4,
//	                 the broker's number of the offer 4, nonce 16, addresses 16 + 16, ports 2 + 2, key 4;
//	                 user tag 1: because RDMA hardware joins the hosts, 0: because a rule asks for it;
//	                 2 beside that: the client's program and its node know PAUSE
//	11 ATTACHED      the receiver's connection 4, the sender's 4, NLA of the ring to write 8, key 4;
//	                 user tag 2: the server's program and its node know PAUSE
//	12 DROP          the receiver's connection 4: it does not exist, or no longer; user tag 1: the server's program
//	                 takes no such segment; user tag 2: its sender has given it up, what was under way is lost
//	13 BYE           the receiver's connection 4: its close is known here, or its PART
//	14 FENCE    Sel  number 4: answer when all before has been delivered
//	15 ANSWER        the receiver's connection 4, number 4
//	15 BATCH         user tag 1: place 4, bytes 4, number 4, CRC-32C of them 4: messages that a PUT has brought
//	                 to the beginning of that place
//	15 TAKEN         user tag 2: place 4, number 4: the batch was taken, and another one may come there
//	15 LEND          user tag 3: NLA of 8 places of 65,536 bytes for batches 8
//	15 HELLO         user tag 4: version 4, the sender's session 8, the receiver's 8 (0: any), a number that tells
//	                 the sender from those that were and will be that node 8: the first message in each mailbox
//	15 RESUME        user tag 5: the receiver's connection 4, the key that it has given 4, the sender's 4,
//	                 number 4, messages put into the queue 8, sum of their advances 8, messages with
//	                 stamps that have come 8, NLA of the ring to write 8
//	15 OVER          user tag 6: 1: the sender has ended all connections, those of this mailbox that the receiver has
//	                 are unknown to it; 0: they end with it 1
//	15 JOINED        user tag 7: the receiver's connection 4, the key that it has given 4: the client has attached
//
// A batch has messages one after the other: type 1, user tag 1, length of the payload 2,
// payload. An RMA_INFO in it may be followed by its data, as part of the payload. It begins with no
// connection selected. Batches are numbered from 0 on in each mailbox.
//
// A message for a connection reaches no other one, even if a node is faulty: a SELECT with a wrong
// key or number resets the connection, and so does a wrong stamp. A batch whose bytes or number
// differ from BATCH resets all connections to that node, because nobody knows to which ones it
// belonged.
//
// In ControlVPID all messages have type 15 and are pieces of messages between the brokers; user tag
// 1 marks the last piece.
//
// # The shadow
//
// A program may rely on the order of events in the segment and on the shadow: an end of file there
// comes after what was written to the segment before (SPEC.md, 5). Shared memory keeps that order
// by itself. Here a Gate holds packets of the shadow that carry data or an end until everything
// written to the segment before has arrived. Packets with neither pass. While the connection is
// suspended the Gate holds the first packet only, as TCP would only repeat it. After PAUSE has
// arrived packets pass until the program promotes again. At the receiver it keeps out packets of a
// node that has just begun anew and does not hold any back.
//
// # When something fails
//
// A program that is killed counts as closed. When the link to a node is lost, its connections wait
// for the next link, and go on from where they were: what was on its way is still in the segments
// (SPEC.md, 5.9; life.go). When the node is asked to end, the programs go back to TCP first
// (GoBack). When it is killed, or is away for longer than TCP would wait, they are reset, because
// nobody knows what had arrived. So a node marks its end of a segment as a node's,
// and a doorbell that ends without CLOSED is a reset to the program. A node that does not have a
// connection answers DROP when the other one selects or resumes it.
//
// # Security
//
// Whoever is a node of the fabric may offer connections for its addresses, as the brokers say.
// Everything that comes from it is checked before it is used: connections are those of that node,
// messages are those that the segment could have, counts are between what was given back and what
// was sent. An impossible value ends that connection. A node has at most Config.MaxConns
// connections, with segments no larger than MaxSlots and MaxRing.
//
// # Concurrency
//
// All methods of an Engine may be called from many goroutines. Its connections belong to the poll
// list of its napi.Context, which one goroutine runs at a time; whoever else wants something leaves
// it in the inbox. Handlers of the NIC only mark what is to be polled. Doorbells are armed when the
// driver's thread is about to wait: while it is awake, or naps, it keeps looking, so that the
// programs need not wake it and messages gather. Config's functions are called by the poll list's
// owner; they may take locks that callers of the Engine's methods hold.
//
// # Limits
//
// Zero copy stays within a host: a node does not understand REGION, so no program sends it.
package relay
