#!/bin/bash
# Steel Bank Common Lisp: a thread for each connection, descriptors and serve-event.
# needs: sbcl=sbcl python3=python3
. "${0%/*}/lib.sh"

serve() {
	cat > echo.lisp <<-X
	(require :sb-bsd-sockets)
	(let ((s (make-instance (quote sb-bsd-sockets:inet-socket) :type :stream :protocol :tcp)))
	  (setf (sb-bsd-sockets:sockopt-reuse-address s) t)
	  (sb-bsd-sockets:socket-bind s #(127 0 0 1) $PORT)
	  (sb-bsd-sockets:socket-listen s 5)
	  (loop (let ((c (sb-bsd-sockets:socket-accept s)))
	    (sb-thread:make-thread (lambda ()
	      (let ((b (make-array 65536 :element-type (quote (unsigned-byte 8)))))
	        (loop (multiple-value-bind (x n) (sb-bsd-sockets:socket-receive c b nil)
	          (declare (ignore x))
	          (when (or (null n) (zerop n)) (sb-bsd-sockets:socket-close c) (return))
	          (let ((at 0)) (loop while (< at n) do
	            (incf at (sb-bsd-sockets:socket-send c (subseq b at n) (- n at)))))))))))))
	X
	exec sbcl --script echo.lisp
}

check() { python3 echo.py client "$PORT" $((SIZE << 23)); }

run "$@"
