#!/bin/bash
# DICOM: pictures stored, by a process for each connection and by one.
# needs: storescp=dcmtk storescu=dcmtk dump2dcm=dcmtk python3=python3
. "${0%/*}/lib.sh"

serve() {
	mkdir -p in one
	(cd in; storescp --fork -od . -uf "$PORT") &
	(cd one; storescp -od . -uf "$BACK") &
	servers
}

check() {
	for i in $(seq 10); do
		head -c 2000000 /dev/urandom > "raw$i"
		cat > "dump$i" <<-X
		(0008,0016) UI =SecondaryCaptureImageStorage
		(0008,0018) UI [1.2.3.$$.$i]
		(0020,000d) UI [1.2.3]
		(0020,000e) UI [1.2.3.4]
		(0028,0002) US 1
		(0028,0004) CS [MONOCHROME2]
		(0028,0010) US 1000
		(0028,0011) US 1000
		(0028,0100) US 16
		(0028,0101) US 16
		(0028,0102) US 15
		(0028,0103) US 0
		(7fe0,0010) OW =$PWD/raw$i
		X
		dump2dcm "dump$i" "pic$i.dcm" 2> /dev/null
	done
	listens "$BACK"
	for port in "$PORT" "$BACK"; do
		storescu 127.0.0.1 "$port" pic*.dcm
		storescu 127.0.0.1 "$port" pic1.dcm pic2.dcm & storescu 127.0.0.1 "$port" pic3.dcm; wait $!
	done
	python3 -c "
import glob
for folder in 'in', 'one':
    got = [open(f, 'rb').read() for f in glob.glob(folder + '/SC.1.2.3.$$.*')]
    for i in range(1, 11):
        raw = open('raw%d' % i, 'rb').read()
        assert sum(raw in g for g in got) == 1, (folder, i, len(got))"
}

run "$@"
