"use strict";
addEventListener("push", (event) => {
  const { title, body, link } = event.data.json();
  event.waitUntil(registration.showNotification(title, { body, icon: "icon.svg", tag: link || title, data: link }));
});
addEventListener("notificationclick", (event) => {
  event.notification.close();
  const list = registration.scope;
  const link = event.notification.data;
  const isOurs = link && new URL(link).origin === new URL(list).origin;
  event.waitUntil(clients.openWindow(isOurs ? link : list));
});
