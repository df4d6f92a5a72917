#!/bin/sh
# break-new FAULT: the lab's fault FAULT holds while another kernel or driver runs than now; it is gone with it.
set -eu
now="$(uname -r) $(cat /sys/module/nvidia/version)"
cat >/usr/local/sbin/break-new-run <<END
#!/bin/sh
[ "\$(uname -r) \$(cat /sys/module/nvidia/version)" != "$now" ] || exit 0
cd /usr/lib/gpunode-lab
exec python3 -c "import sys; from lab import faults; sys.exit(faults.main(sys.argv[1:]))" "\$@"
END
chmod 755 /usr/local/sbin/break-new-run
cat >/etc/systemd/system/break-new.service <<END
[Unit]
After=systemd-modules-load.service gpunode-nvidia-nodes.service nvidia-persistenced.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/break-new-run apply $*
ExecStop=/usr/local/sbin/break-new-run clear
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
systemctl enable --now break-new.service
